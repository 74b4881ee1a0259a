"""Video files and folders of frames → the frames asked for. Knows nothing of labels, models or recipes.

Names are imported when first used: models need `video.spec`, and no decoder.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motionformer.video.decode import open_video as open_video
    from motionformer.video.decode import read_frames as read_frames
    from motionformer.video.source import Clock as Clock
    from motionformer.video.source import ReadFacts as ReadFacts
    from motionformer.video.source import Video as Video
    from motionformer.video.source import VideoMetadata as VideoMetadata
    from motionformer.video.source import retry_if_frame_count_changed as retry_if_frame_count_changed

__all__ = [
    "Clock",
    "ReadFacts",
    "Video",
    "VideoMetadata",
    "open_video",
    "read_frames",
    "retry_if_frame_count_changed",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "decode" if name in ("open_video", "read_frames") else "source"
    return getattr(import_module(f"motionformer.video.{home}"), name)
