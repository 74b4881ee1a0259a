"""Video files and folders of frames → the frames asked for. Knows nothing of labels, models or recipes."""

from motionformer.video.clock import Clock
from motionformer.video.metadata import VideoMetadata
from motionformer.video.open import DECODERS, open_video, read_frames
from motionformer.video.source import ReadFacts, Video, take_settled

__all__ = [
    "DECODERS",
    "Clock",
    "ReadFacts",
    "Video",
    "VideoMetadata",
    "open_video",
    "read_frames",
    "take_settled",
]
