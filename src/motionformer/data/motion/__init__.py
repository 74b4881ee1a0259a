"""The built-in motion benchmark: clips whose class is only in the motion. Scene (numbers) → render (pixels) → clips."""

from motionformer.data.motion.dataset import MotionBenchmark, MotionClip, write_videos
from motionformer.data.motion.scene import CLASSES, LEVELS, Level

__all__ = ["CLASSES", "LEVELS", "Level", "MotionBenchmark", "MotionClip", "write_videos"]
