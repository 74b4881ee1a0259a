"""A mask of the first frame → masks along a video, by label propagation. `tracker.py` is the start."""

from motionformer.tracking.features import AttentionReadout, ClipFeatures, TokenReadout
from motionformer.tracking.masks import read_mask, write_mask
from motionformer.tracking.propagation import Affinity
from motionformer.tracking.tracker import CopyFirst, LabelPropagation, open_backbone, track_video

__all__ = [
    "Affinity",
    "AttentionReadout",
    "ClipFeatures",
    "CopyFirst",
    "LabelPropagation",
    "TokenReadout",
    "open_backbone",
    "read_mask",
    "track_video",
    "write_mask",
]
