"""START HERE (`predictor.py`): video in, prediction out. Also timelines, streams and features."""

from motionformer.predict.features import FeatureExtractor, Features
from motionformer.predict.inputs import Input, find_inputs
from motionformer.predict.prediction import Guess, Prediction
from motionformer.predict.predictor import Predictor
from motionformer.predict.timeline import Segment, Timeline

__all__ = [
    "FeatureExtractor",
    "Features",
    "Guess",
    "Input",
    "Prediction",
    "Predictor",
    "Segment",
    "Timeline",
    "find_inputs",
]
