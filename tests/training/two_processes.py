"""Run by `test_processes.py` as a script: Lightning starts it once more for every further process."""

import json
import sys

import torch

from motionformer.data import Failure
from motionformer.training import make_recipe, train
from motionformer.training.sources import _MotionItems

FAILED = (3, 10)
"""Clips that cannot be read. Which process and which batch they land in differs between one process and two."""

read = _MotionItems.__getitem__


def fail_sometimes(self: _MotionItems, visit: object) -> dict[str, object]:
    item = read(self, visit)  # type: ignore[arg-type]
    if item["index"] in FAILED:
        return {"failure": Failure(item["path"], "broken", item["index"], item["label"])}
    return item


if __name__ == "__main__":
    torch.set_num_threads(1)
    _MotionItems.__getitem__ = fail_sometimes  # type: ignore[method-assign]
    train(make_recipe(json.loads(sys.argv[1]), sys.argv[2:]), quiet=True)
