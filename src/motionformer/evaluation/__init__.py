"""Models are scored: views → scores → results → figures. Knows nothing of training."""

from motionformer.evaluation.aggregate import Scoring, Sigmoid, Softmax, average_views, find_scoring
from motionformer.evaluation.compare import Comparison, compare
from motionformer.evaluation.epic import challenge_submission, write_challenge
from motionformer.evaluation.report import print_summary, write_reports
from motionformer.evaluation.results import Header, Results
from motionformer.evaluation.run import evaluate
from motionformer.evaluation.source import open_source
from motionformer.evaluation.summary import confusion, summarise
from motionformer.evaluation.views import Entry, FileVideos, MotionVideos, VideoSource

__all__ = [
    "Comparison",
    "Entry",
    "FileVideos",
    "Header",
    "MotionVideos",
    "Results",
    "Scoring",
    "Sigmoid",
    "Softmax",
    "VideoSource",
    "average_views",
    "challenge_submission",
    "compare",
    "confusion",
    "evaluate",
    "find_scoring",
    "open_source",
    "print_summary",
    "summarise",
    "write_challenge",
    "write_reports",
]
