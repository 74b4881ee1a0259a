"""Video files and folders of frames → the frames asked for. Knows nothing of labels, models or recipes."""

from motionformer.video.decode import open_video, read_frames
from motionformer.video.source import Clock, ReadFacts, Video, VideoMetadata, retry_if_frame_count_changed

__all__ = [
    "Clock",
    "ReadFacts",
    "Video",
    "VideoMetadata",
    "open_video",
    "read_frames",
    "retry_if_frame_count_changed",
]
