"""Imported by the fork server of `tests/children.py`: what every process of its own would load again."""

import tempfile

import torch
import torch._dynamo
import torch.utils.tensorboard

import motionformer.cli
import motionformer.export
import motionformer.finetuning
import motionformer.inference
import motionformer.tracing  # noqa: F401
from motionformer.training import make_recipe, train
from tests.training.children import SMALL

torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    train(make_recipe(SMALL, [f"output={folder}/run", "epochs=1"]), quiet=True)
