"""A video that the page may ask about: a file in the page's own temporary folder, and the name people know it by."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float32
from torch import Tensor

from motionformer.app.limits import Limits
from motionformer.errors import PageError, VideoError
from motionformer.video import VideoMetadata, open_video


@dataclass(frozen=True)
class PageVideo:
    """Where it lies is nobody's business but the server's; `name` is what is shown and written into downloads."""

    name: str
    path: Path
    facts: VideoMetadata
    truth: Float32[Tensor, "t 2"] | None = None
    """Where the object is in every frame, (x, y) in pixels, if that is known."""


def open_upload(path: Path, name: str, limits: Limits, time_limit: float = 20.0) -> PageVideo:
    """The video that somebody gave, or an error with the decoder's own reason."""
    try:
        with open_video(path, time_limit=time_limit) as video:
            facts = video.metadata
            limits.check_length(facts.duration)
            limits.check_frame(facts.width, facts.height)
            video.read([facts.num_frames // 2])  # a header can be read where pictures cannot
    except VideoError as error:
        raise PageError(f"{name} cannot be read as a video: {error.full_reason}.", status=422) from error
    return PageVideo(name, path, facts)
