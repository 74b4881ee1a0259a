"""The HTTP routes: the page's own three files, and JSON under /api/ for pages that have a session.

Every request under /api/ carries the header `X-Session`. A page of another site cannot send it (browsers ask first, and
are not allowed), so no other site can use this server; host names are checked for the same reason.
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

from motionformer.errors import MotionformerError, PageError
from motionformer.serve.models import Models, Question
from motionformer.serve.sessions import Limits, PageVideo, Sessions, open_upload
from motionformer.tracing import KINDS, Clip, find_geometry
from motionformer.video import read_frames

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_TYPES = {"png": "image/png", "gif": "image/gif", "mp4": "video/mp4", "json": "application/json"}
_MAX_SIDE = 640  # pixels of the longer side of frames on the page; points are still in pixels of the video
_EXPIRE_EVERY = 20.0  # seconds
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def make_app(models: Models, examples: Mapping[str, PageVideo], sessions: Sessions, hosts: list[str]) -> Starlette:
    """The page as an ASGI application; `hosts` are the names it may be reached by."""
    api = _Api(models, examples, sessions)
    routes = [Route(path, _file(*found)) for path, found in _FILES.items()]
    routes += [
        Route("/api/start", api.start, methods=["POST"]),
        Route("/api/close", api.close, methods=["POST"]),
        Route("/api/upload", api.upload, methods=["POST"]),
        Route("/api/clip", api.clip),
        Route("/api/prediction", api.prediction),
        Route("/api/trace", api.trace),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts), Middleware(_WithHeaders)],
        exception_handlers={MotionformerError: _report_error, Exception: _report_failure},
        lifespan=api.expiring,
    )


class _Api:
    """One method per route."""

    def __init__(self, models: Models, examples: Mapping[str, PageVideo], sessions: Sessions) -> None:
        self.models, self.examples, self.sessions = models, examples, sessions

    @asynccontextmanager
    async def expiring(self, _: Starlette) -> AsyncIterator[None]:
        """While the server runs, idle sessions are closed, also without requests."""

        async def expire() -> None:
            while True:
                await asyncio.sleep(_EXPIRE_EVERY)
                self.sessions.expire()

        task = asyncio.create_task(expire())
        try:
            yield
        finally:
            task.cancel()

    def start(self, request: Request) -> Response:
        """A session, and all that the page shows before anything is chosen."""
        if "x-session" not in request.headers:
            raise PageError("open the page itself: this address only serves its requests.", status=403)
        return JSONResponse(
            {
                "session": self.sessions.start(),
                "models": self.models.describe(),
                "kinds": {
                    name: {"per_frame": kind.per_frame, "takes_point": kind.takes_point} for name, kind in KINDS.items()
                },
                "limits": self.sessions.limits.to_dict(),
                "examples": [
                    {"id": key, "name": one.name, "picture": _thumbnail(one)} for key, one in self.examples.items()
                ],
            }
        )

    def close(self, request: Request) -> Response:
        self.sessions.close(request.headers.get("x-session"))
        return JSONResponse({})

    async def upload(self, request: Request) -> Response:
        """The file is the body; its name, which is only shown, is a query parameter."""
        session, limits = self.sessions.find(request.headers.get("x-session")), self.sessions.limits
        limits.check_size(_integer(request.headers.get("content-length", "0"), "content-length"))
        with self.sessions.sending(session) as path:
            await _receive(request, path, limits)
            name = request.query_params.get("name", "")[-80:] or "the file"
            video = await run_in_threadpool(open_upload, path, name, limits)
            self.sessions.keep(session, video)
        return JSONResponse({"id": "upload", "name": video.name})

    def clip(self, request: Request) -> Response:
        """The frames that each model sees."""
        video = self._video(request)
        clips = self.models.clips(video, _optional_integer(request, "around"), self._show)
        metadata = video.metadata
        return JSONResponse(
            {
                "name": video.name,
                "frames": metadata.num_frames,
                "fps": metadata.fps,
                "width": metadata.width,
                "height": metadata.height,
                "clips": clips,
            }
        )

    def prediction(self, request: Request) -> Response:
        return JSONResponse(self.models.predict(self._video(request)))

    def trace(self, request: Request) -> Response:
        """As JSON, or as a picture or clip to download."""
        query = request.query_params
        kind = query.get("format", "json")
        if kind not in _TYPES:
            raise PageError(f"`format` ({kind!r}) must be one of {', '.join(_TYPES)}.")
        x, y = _optional_number(request, "x"), _optional_number(request, "y")
        question = Question(
            what=query.get("what", "trajectory"),
            around=_optional_integer(request, "around"),
            frame=_optional_integer(request, "frame"),
            point=None if x is None or y is None else (x, y),
            layer=query.get("layer", "last"),
            head=query.get("head", "mean"),
            label=query.get("label") or None,
            scale=query.get("scale", "relative"),
        )
        return Response(self.models.trace(self._video(request), question).render(kind), media_type=_TYPES[kind])

    def _video(self, request: Request) -> PageVideo:
        """An example clip or the session's own upload; nothing else can be reached."""
        session = self.sessions.find(request.headers.get("x-session"))
        wanted = request.query_params.get("video", "")
        video = session.upload if wanted == "upload" else self.examples.get(wanted)
        if video is None:
            raise PageError(f"there is no video {wanted!r}: choose an example clip, or upload one.", status=404)
        return video

    def _show(self, name: str, clip: Clip) -> dict[str, Any]:
        height, width = clip.frames.shape[1:3]
        geometry = find_geometry(self.models.models[name].config, (height, width))
        return {
            "model": name,
            "numbers": list(clip.numbers),
            "query_index": clip.query_index,
            "visible": geometry.visible,
            "images": [_picture(Image.fromarray(frame.numpy())) for frame in clip.frames],
        }


class _WithHeaders:
    """No external resources, no content sniffing, no framing, no caching."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await self.app(scope, receive, with_headers)


async def _receive(request: Request, path: Path, limits: Limits) -> None:
    size = 0
    with path.open("wb") as file:
        async for part in request.stream():
            size += len(part)
            limits.check_size(size)  # content-length may be wrong, or missing
            file.write(part)


def _file(name: str, media_type: str) -> Callable[[Request], Response]:
    content = (_PAGE / name).read_bytes()
    return lambda _: Response(content, media_type=media_type)


def _report_error(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=error.status if isinstance(error, PageError) else 422)


def _report_failure(_: Request, error: Exception) -> Response:
    text = f"internal error of the server ({type(error).__name__}); its terminal shows the details."
    return JSONResponse({"error": text}, status_code=500)


def _thumbnail(video: PageVideo) -> str:
    return _picture(Image.fromarray(read_frames(video.path, [video.metadata.num_frames // 2])[0].numpy()))


def _picture(image: Image.Image) -> str:
    """As a data URL."""
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=92)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def _optional_integer(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    return None if not text else _integer(text, name)


def _integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise PageError(f"`{name}` must be an integer; not {text[:40]!r}.") from None


def _optional_number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    try:
        return None if not text else float(text)
    except ValueError:
        raise PageError(f"`{name}` must be a number; not {text!r:.40}.") from None
