"""Video object segmentation by label propagation, and its scores on DAVIS (paper, appendix). `run.py` is the start."""

from motionformer.davis.affinity import Affinity
from motionformer.davis.boundary import boundary_f
from motionformer.davis.features import AttentionReadout, ClipFeatures, TokenReadout
from motionformer.davis.jaccard import jaccard
from motionformer.davis.layout import find_sequences
from motionformer.davis.masks import read_mask, write_mask
from motionformer.davis.run import evaluate, score_folders, track_video
from motionformer.davis.score import Scores, score_sequence
from motionformer.davis.tracker import CopyFirst, LabelPropagation, open_backbone

__all__ = [
    "Affinity",
    "AttentionReadout",
    "ClipFeatures",
    "CopyFirst",
    "LabelPropagation",
    "Scores",
    "TokenReadout",
    "boundary_f",
    "evaluate",
    "find_sequences",
    "jaccard",
    "open_backbone",
    "read_mask",
    "score_folders",
    "score_sequence",
    "track_video",
    "write_mask",
]
