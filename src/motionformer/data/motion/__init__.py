"""The built-in motion benchmark: clips whose class is only in the motion. Scene (numbers) → render (pixels) → clips."""

from motionformer.data.motion.dataset import MotionBenchmark, MotionClip
from motionformer.data.motion.level import LEVELS, Level
from motionformer.data.motion.scene import CLASSES
from motionformer.data.motion.videos import write_videos

__all__ = ["CLASSES", "LEVELS", "Level", "MotionBenchmark", "MotionClip", "write_videos"]
