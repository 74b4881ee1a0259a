"""Attention → paths → pictures, clips, JSON. Start in `run.py`; `path_error` compares paths with the true one.

`trace(model, video, point)`: a clip and its geometry (`clip.py`) → maps (`maps.py`) → paths
(`paths.py`) → a `Trace` (`run.py`), drawn by `draw.py`.
"""

from motionformer.tracing.clip import Clip, Geometry, Query, find_geometry, open_clip
from motionformer.tracing.maps import KINDS
from motionformer.tracing.paths import (
    PathError,
    PathErrors,
    ellipse,
    expected_path,
    path_covariance,
    path_error,
    peak_path,
)
from motionformer.tracing.run import Comparison, Trace, Track, compare, trace

__all__ = [
    "KINDS",
    "Clip",
    "Comparison",
    "Geometry",
    "PathError",
    "PathErrors",
    "Query",
    "Trace",
    "Track",
    "compare",
    "ellipse",
    "expected_path",
    "find_geometry",
    "open_clip",
    "path_covariance",
    "path_error",
    "peak_path",
    "trace",
]
