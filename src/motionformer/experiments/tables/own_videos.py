"""A table of the paper on a folder of videos: each row's kind of model, trained as `motionformer finetune` would.

The videos decide the clip and the head, the row everything else. All rows and seeds share one split of the videos.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motionformer.experiments.tables.experiments import Row
from motionformer.models.variants import VARIANTS
from motionformer.training.advice import BASIS, Wishes, config_changes
from motionformer.training.finetune import FineTuning, plan_finetune
from motionformer.training.model import build_config
from motionformer.training.recipe import load_recipe
from motionformer.training.shipped import find_recipe

EPOCHS = 10
"""A quarter of what `finetune` takes from random weights: a table is many runs."""
OF_THE_ROW = ("attention", "attend", "time", "tubelet", "positions", "project_values")
"""What a row decides about the model."""


def plan_row(row: Row, videos: Path, folder: Path, changes: Sequence[str]) -> FineTuning:
    """The training of a row on these videos, in this folder; `changes` come last."""
    wishes = Wishes(epochs=EPOCHS, name=folder.parent.name, output=str(folder))  # tables that share a run name it alike
    return plan_finetune(videos, wishes, [*_model_of(row), *changes])


def _model_of(row: Row) -> Iterator[str]:
    """Keys of a recipe that make the model of the row out of the one that `finetune` chooses."""
    config = build_config(load_recipe(find_recipe(row.recipe), row.changes), 1)
    chosen = {key: value for key, value in config_changes(config).items() if key in OF_THE_ROW}
    yield from _flat("model.changes", chosen)
    if config.input.frames != VARIANTS[BASIS].input.frames:
        yield f"model.changes.input.frames={config.input.frames}"
    if row.x is not None:  # a point of the figure about strides; elsewhere a clip is the whole video
        yield "model.changes.input.sampling=stride"
        yield f"model.changes.input.stride={row.x:.0f}"


def _flat(key: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{key}.{name}", value)
        else:
            yield f"{key}.{name}={value}"
