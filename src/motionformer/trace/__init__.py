"""Attention → paths → pictures, clips, JSON. `trace` is the way in; `path_error` measures where truth is known."""

from motionformer.trace.clip import Clip, open_clip
from motionformer.trace.kinds import KINDS
from motionformer.trace.paths import ellipse, expected_path, path_covariance, peak_path
from motionformer.trace.query import Geometry, Query, find_geometry
from motionformer.trace.result import Trace, Track
from motionformer.trace.run import trace
from motionformer.trace.score import PathError, PathErrors, path_error
from motionformer.trace.sidebyside import Comparison, compare

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
