"""A mask of the first frame → masks along a video, by label propagation. Start in `tracker.py`."""

from motionformer.tracking.masks import read_mask, write_mask
from motionformer.tracking.propagation import Affinity, AttentionReadout, ClipFeatures, TokenReadout
from motionformer.tracking.tracker import (
    CopyFirst,
    LabelPropagation,
    Tracker,
    TrackResult,
    make_tracker,
    open_backbone,
    track,
)

__all__ = [
    "Affinity",
    "AttentionReadout",
    "ClipFeatures",
    "CopyFirst",
    "LabelPropagation",
    "TokenReadout",
    "TrackResult",
    "Tracker",
    "make_tracker",
    "open_backbone",
    "read_mask",
    "track",
    "write_mask",
]
