"""Sources and results made up for tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from motionformer.data import Failure
from motionformer.inference import Entry, Header, Results

NAMES = ("a", "b", "c", "d", "e", "f", "g")


class Numbers:
    """Video i is a block of noise from seed i; some cannot be read, and reading one may end everything."""

    name = "numbers"
    class_names: Any = NAMES

    def __init__(
        self,
        count: int = 11,
        views: int = 2,
        crops: int = 3,
        *,
        broken: Sequence[int] = (),
        fatal: int | None = None,
        labels: Sequence[Any] | None = None,
    ) -> None:
        self.num_views, self.num_crops, self.broken, self.fatal = views, crops, broken, fatal
        labels = [i % len(NAMES) for i in range(count)] if labels is None else labels
        self.entries = tuple(Entry(f"video {i}", f"/videos/{i}.mp4", label) for i, label in enumerate(labels))
        self.read_indices: list[int] = []

    def protocol(self) -> dict[str, Any]:
        return {"frames": 2, "views": self.num_views, "crops": self.num_crops}

    def read(self, index: int) -> Tensor | Failure:
        if index == self.fatal:
            raise KeyboardInterrupt
        self.read_indices.append(index)
        if index in self.broken:
            return Failure(self.entries[index].path, "is broken", index)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self.num_views * self.num_crops, 3, 2, 4, 4, generator=generator)


class Linear(nn.Module):
    """A model of somebody else's: no config. Remembers how many clips it was given at once."""

    def __init__(self, heads: dict[str, int] | int = 7) -> None:
        super().__init__()
        sizes = heads if isinstance(heads, dict) else {"class": heads}
        generator = torch.Generator().manual_seed(0)
        self.heads = nn.ParameterDict({k: torch.randn(96, n, generator=generator) for k, n in sizes.items()})
        self.is_single = not isinstance(heads, dict)
        self.batches: list[int] = []

    def forward(self, clip: Tensor) -> Any:
        self.batches.append(len(clip))
        logits = {task: clip.flatten(1) @ weight for task, weight in self.heads.items()}
        return logits["class"] if self.is_single else logits


def made_results(
    scores: dict[str, Any], labels: dict[str, Any], *, failures: dict[int, str] | None = None, model: str = "m"
) -> Results:
    """Results with the given per-view scores `[n v c k]`; failed videos get NaN."""
    arrays = {task: np.array(values, dtype=np.float32) for task, values in scores.items()}
    n, v, c, _ = next(iter(arrays.values())).shape
    for values in arrays.values():
        values[list(failures or {})] = np.nan
    names = {task: tuple(f"{task} {i}" for i in range(values.shape[-1])) for task, values in arrays.items()}
    header = Header(model, model, "made", "made", v, c, {}, "softmax", "32", names)
    ids = tuple(f"video {i}" for i in range(n))
    made = {task: np.array(values) for task, values in labels.items()}
    return Results(header, ids, ids, made, arrays, failures or {})


def random_scores(*shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).dirichlet(np.ones(shape[-1]) * 0.5, size=shape[:-1])
    return values.astype(np.float32)
