"""Video files and folders of frames → the frames asked for. Knows nothing of labels, models or recipes."""

from motionformer.video.open import DECODERS, open_video, read_frames
from motionformer.video.source import Clock, ReadFacts, Video, VideoMetadata, retry_if_frame_count_changed

__all__ = [
    "DECODERS",
    "Clock",
    "ReadFacts",
    "Video",
    "VideoMetadata",
    "open_video",
    "read_frames",
    "retry_if_frame_count_changed",
]
