"""Several models on the same clip and the same query: joint, divided and trajectory attention beside each other."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motionformer.models import Motionformer
from motionformer.trace.clip import Source
from motionformer.trace.result import Row, Trace, render_rows, save_rows, write_bytes
from motionformer.trace.run import trace


@dataclass(frozen=True)
class Comparison:
    """One trace for each model."""

    traces: tuple[Trace, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for one in self.traces for row in one.rows]

    def to_json(self) -> str:
        return json.dumps([one.to_dict() for one in self.traces])

    def to_png(self) -> bytes:
        return render_rows(self.rows, ".png")

    def save(self, path: str | Path) -> None:
        """By suffix, as `Trace.save`; JSON is a list with one object a model."""
        if Path(path).suffix.lower() == ".json":
            write_bytes(path, self.to_json().encode())
        else:
            save_rows(self.rows, path)


def compare(models: Mapping[str, Motionformer | str | Path], clip: Source, **options: Any) -> Comparison:
    """`trace` of each model, by the name it has in the picture, with the same options."""
    return Comparison(tuple(trace(model, clip, name=name, **options) for name, model in models.items()))
