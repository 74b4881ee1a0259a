"""DAVIS (paper, appendix): sequences, trackers on them, and their scores. `run.py` is the start."""

from motionformer.experiments.davis.layout import find_sequences
from motionformer.experiments.davis.run import evaluate, score_folders
from motionformer.experiments.davis.score import Scores, boundary_f, jaccard, score_sequence

__all__ = ["Scores", "boundary_f", "evaluate", "find_sequences", "jaccard", "score_folders", "score_sequence"]
