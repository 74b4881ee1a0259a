"""Which data a run was on, told in a line a split, so that it does not go on with others.

Made examples are told by what makes them, read ones by their number and a hash of some of them: where they lie does not
matter, so a folder may move.
"""

from hashlib import sha256
from typing import Protocol, runtime_checkable

import numpy as np

from motionformer.experiments.lra.examples import Examples, Splits

HASHED = 64
"""Examples of a split that are hashed, from the first to the last at equal distances."""


@runtime_checkable
class Made(Protocol):
    """Examples that are made when asked for."""

    @property
    def recipe(self) -> str:
        """Everything that the examples depend on, their number included."""


def fingerprint(splits: Splits) -> dict[str, str]:
    parts = {"train data": splits.train, "dev data": splits.dev, "test data": splits.test}
    return {name: part.recipe if isinstance(part, Made) else _hash(part) for name, part in parts.items()}


def _hash(examples: Examples) -> str:
    digest = sha256()
    for place in np.linspace(0, len(examples) - 1, min(HASHED, len(examples))).astype(int).tolist():
        texts, label = examples[place]
        digest.update(f"{label} {[len(text) for text in texts]}".encode())
        for text in texts:
            digest.update(text.astype("<i2").tobytes())
    return f"{len(examples)} examples ({digest.hexdigest()[:12]})"
