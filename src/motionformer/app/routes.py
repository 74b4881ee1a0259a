"""What a browser may ask for. The page's own three files, and JSON under /api/ for pages that have a place.

Every request under /api/ carries the header `X-Visitor`. A page of another site cannot send it (browsers ask first, and
are not allowed), so nobody else's page can use this one; names of hosts are checked for the same reason.
"""

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from motionformer.app.limits import Limits
from motionformer.app.questions import Asked, Models
from motionformer.app.video import PageVideo, open_upload
from motionformer.app.visitors import Visitors
from motionformer.errors import MotionformerError, PageError
from motionformer.trace import KINDS, Clip, find_geometry
from motionformer.trace.result import render_rows

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
TYPES = {"png": "image/png", "gif": "image/gif", "mp4": "video/mp4", "json": "application/json"}
SHOWN_SIDE = 640  # pixels of the longer side of frames on the page; points are still in pixels of the video
SWEEP_EVERY = 20.0  # seconds
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def make_app(models: Models, ready: Mapping[str, PageVideo], visitors: Visitors, hosts: list[str]) -> Starlette:
    """The page as an ASGI application; `hosts` are the names it may be reached by."""
    api = Api(models, ready, visitors)
    routes = [Route(path, _file(*found)) for path, found in FILES.items()]
    routes += [
        Route("/api/enter", api.enter, methods=["POST"]),
        Route("/api/leave", api.leave, methods=["POST"]),
        Route("/api/upload", api.upload, methods=["POST"]),
        Route("/api/clip", api.clip),
        Route("/api/prediction", api.prediction),
        Route("/api/trace", api.trace),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts), Middleware(WithHeaders)],
        exception_handlers={MotionformerError: _refuse, Exception: _apologise},
        lifespan=api.sweeping,
    )


class Api:
    """One method a route."""

    def __init__(self, models: Models, ready: Mapping[str, PageVideo], visitors: Visitors) -> None:
        self.models, self.ready, self.visitors = models, ready, visitors

    @asynccontextmanager
    async def sweeping(self, _: Starlette) -> AsyncIterator[None]:
        """While the server runs, those who went idle are looked for, also if nobody asks anything."""

        async def sweep() -> None:
            while True:
                await asyncio.sleep(SWEEP_EVERY)
                self.visitors.sweep()

        task = asyncio.create_task(sweep())
        try:
            yield
        finally:
            task.cancel()

    def enter(self, request: Request) -> Response:
        """A place, and all that the page says before anything was chosen."""
        if "x-visitor" not in request.headers:
            raise PageError("open the page itself: this address is for its own requests.", status=403)
        return JSONResponse(
            {
                "visitor": self.visitors.enter(),
                "models": self.models.describe(),
                "whats": list(KINDS),
                "limits": self.visitors.limits.to_dict(),
                "ready": [{"id": key, "name": one.name, "picture": _thumbnail(one)} for key, one in self.ready.items()],
            }
        )

    def leave(self, request: Request) -> Response:
        self.visitors.leave(request.headers.get("x-visitor"))
        return JSONResponse({})

    async def upload(self, request: Request) -> Response:
        """The file is the body; its name, which is only ever shown, comes in the address."""
        visitor, limits = self.visitors.find(request.headers.get("x-visitor")), self.visitors.limits
        limits.check_size(_whole(request.headers.get("content-length", "0"), "content-length"))
        with self.visitors.sending(visitor) as path:
            await _receive(request, path, limits)
            name = request.query_params.get("name", "")[-80:] or "the file"
            video = await run_in_threadpool(open_upload, path, name, limits)
            self.visitors.keep(visitor, video)
        return JSONResponse({"id": "upload", "name": video.name})

    def clip(self, request: Request) -> Response:
        """The frames that each model is shown."""
        video = self._video(request)
        clips = self.models.clips(video, _optional_whole(request, "around"), self._show)
        facts = video.facts
        return JSONResponse(
            {
                "name": video.name,
                "frames": facts.num_frames,
                "fps": facts.fps,
                "width": facts.width,
                "height": facts.height,
                "clips": clips,
            }
        )

    def prediction(self, request: Request) -> Response:
        return JSONResponse(self.models.predict(self._video(request)))

    def trace(self, request: Request) -> Response:
        """As JSON, or as a picture or clip to take away."""
        query = request.query_params
        kind = query.get("format", "json")
        if kind not in TYPES:
            raise PageError(f"a trace is written as {', '.join(TYPES)}; not {kind!r}.")
        x, y = _optional_number(request, "x"), _optional_number(request, "y")
        asked = Asked(
            what=query.get("what", "trajectory"),
            around=_optional_whole(request, "around"),
            frame=_optional_whole(request, "frame"),
            at=None if x is None or y is None else (x, y),
            layer=query.get("layer", "last"),
            head=query.get("head", "mean"),
            label=query.get("label") or None,
            scale=query.get("scale", "relative"),
        )
        found = self.models.trace(self._video(request), asked)
        content = found.to_json().encode() if kind == "json" else render_rows(found.rows, f".{kind}")
        return Response(content, media_type=TYPES[kind])

    def _video(self, request: Request) -> PageVideo:
        """A ready clip or the visitor's own upload; there is nothing else."""
        visitor = self.visitors.find(request.headers.get("x-visitor"))
        wanted = request.query_params.get("video", "")
        video = visitor.upload if wanted == "upload" else self.ready.get(wanted)
        if video is None:
            raise PageError(f"there is no video {wanted!r} here: choose a ready clip, or upload one.", status=404)
        return video

    def _show(self, name: str, clip: Clip) -> dict[str, Any]:
        height, width = clip.frames.shape[1:3]
        geometry = find_geometry(self.models.models[name].config, (height, width))
        return {
            "model": name,
            "numbers": list(clip.numbers),
            "asked": clip.asked,
            "visible": geometry.visible,
            "images": [_picture(Image.fromarray(frame.numpy())) for frame in clip.frames],
        }


class WithHeaders:
    """Nothing is fetched from elsewhere, guessed, framed or kept."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await self.app(scope, receive, with_headers)


async def _receive(request: Request, path: Path, limits: Limits) -> None:
    size = 0
    with path.open("wb") as file:
        async for part in request.stream():
            size += len(part)
            limits.check_size(size)  # what was announced may be wrong, or missing
            file.write(part)


def _file(name: str, media_type: str) -> Callable[[Request], Response]:
    content = (PAGE / name).read_bytes()
    return lambda _: Response(content, media_type=media_type)


def _refuse(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=error.status if isinstance(error, PageError) else 422)


def _apologise(_: Request, error: Exception) -> Response:
    text = f"something went wrong in the server ({type(error).__name__}); the terminal it runs in says more."
    return JSONResponse({"error": text}, status_code=500)


def _thumbnail(video: PageVideo) -> str:
    from motionformer.video import read_frames

    return _picture(Image.fromarray(read_frames(video.path, [video.facts.num_frames // 2])[0].numpy()))


def _picture(image: Image.Image) -> str:
    """As an address that holds the picture itself."""
    image.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=92)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def _optional_whole(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return None if not text else _whole(text, name)


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PageError(f"{name} is a whole number; not {text[:40]!r}.") from None


def _optional_number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    try:
        return None if not text else float(text)
    except ValueError:
        raise PageError(f"{name} is a number; not {text!r:.40}.") from None
