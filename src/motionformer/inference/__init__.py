"""A model is used: predictions, timelines, features, evaluation. START HERE: `predictor.py`."""

from motionformer.inference.comparison import Comparison, compare
from motionformer.inference.evaluation import evaluate
from motionformer.inference.features import FeatureExtractor, Features, read_features
from motionformer.inference.inputs import Input, find_inputs
from motionformer.inference.predictor import Predictor
from motionformer.inference.report import (
    challenge_submission,
    confusion,
    print_summary,
    summarise,
    write_challenge,
    write_reports,
)
from motionformer.inference.results import ClassScore, Header, Prediction, Results
from motionformer.inference.reversal import ReversedVideos, compare_reversed
from motionformer.inference.scorer import Scoring, Sigmoid, Softmax, average_views
from motionformer.inference.sync import SyncFeatures, SyncPrediction, SyncPredictor, SyncWindow, desync_score
from motionformer.inference.timeline import Segment, Timeline
from motionformer.inference.views import Entry, FileVideos, MotionVideos, VideoSource, open_source

__all__ = [
    "ClassScore",
    "Comparison",
    "Entry",
    "FeatureExtractor",
    "Features",
    "FileVideos",
    "Header",
    "Input",
    "MotionVideos",
    "Prediction",
    "Predictor",
    "Results",
    "ReversedVideos",
    "Scoring",
    "Segment",
    "Sigmoid",
    "Softmax",
    "SyncFeatures",
    "SyncPrediction",
    "SyncPredictor",
    "SyncWindow",
    "Timeline",
    "VideoSource",
    "average_views",
    "challenge_submission",
    "compare",
    "compare_reversed",
    "confusion",
    "desync_score",
    "evaluate",
    "find_inputs",
    "open_source",
    "print_summary",
    "read_features",
    "summarise",
    "write_challenge",
    "write_reports",
]
