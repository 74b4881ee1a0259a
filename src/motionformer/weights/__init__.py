"""Weights files in, models out: released checkpoints, image transformers, our own folders, the hub."""

from motionformer.weights.fit import LoadReport
from motionformer.weights.image import from_image_weights
from motionformer.weights.load import list_weights, load_model, load_model_with_report
from motionformer.weights.released import RELEASED
from motionformer.weights.synchformer import load_synchformer

__all__ = [
    "RELEASED",
    "LoadReport",
    "from_image_weights",
    "list_weights",
    "load_model",
    "load_model_with_report",
    "load_synchformer",
]
