"""Which videos a model was trained on: saved with its weights, so that an evaluation can tell them from new ones.

Videos are known by fingerprints of their contents (`data.fingerprints` makes them): no names, no paths.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TRAINING_DATA = "training_data.json"
FORMAT = 1
Span = tuple[float, float]
"""From (included) to (excluded): seconds of a video, or numbers of made clips."""
WHOLE: Span = (0.0, math.inf)
Overlap = Literal["none", "file", "video"]
"""No common file; pieces of a common file that do not meet; the same video, or pieces of it that meet."""


@dataclass(frozen=True, repr=False)
class VideoSet:
    """Videos and pieces of videos: of every fingerprint the spans that belong to the set."""

    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, pieces: Iterable[tuple[str, Span]]) -> "VideoSet":
        found: dict[str, dict[Span, None]] = {}
        for fingerprint, span in pieces:
            found.setdefault(fingerprint, {})[span] = None
        return cls({key: (WHOLE,) if WHOLE in spans else tuple(sorted(spans)) for key, spans in found.items()})

    def __repr__(self) -> str:
        return f"VideoSet({len(self)} videos)"

    def __len__(self) -> int:
        return len(self.spans)

    def __or__(self, other: "VideoSet") -> "VideoSet":
        return VideoSet.of((key, span) for one in (self, other) for key, of in one.spans.items() for span in of)

    def overlap(self, fingerprint: str, span: Span = WHOLE) -> Overlap:
        """How a video, or a piece of one, relates to those of the set."""
        spans = self.spans.get(fingerprint)
        if spans is None:
            return "none"
        return "video" if any(start < span[1] and span[0] < end for start, end in spans) else "file"

    def to_dict(self) -> dict[str, Any]:
        pieces = {key: of for key, of in sorted(self.spans.items()) if of != (WHOLE,)}
        return {
            "whole": sorted(self.spans.keys() - pieces.keys()),
            "pieces": {key: [[a, None if b == math.inf else b] for a, b in of] for key, of in pieces.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "VideoSet":
        pieces = {
            key: tuple((float(a), math.inf if b is None else float(b)) for a, b in of)
            for key, of in values["pieces"].items()
        }
        return cls({**{str(key): (WHOLE,) for key in values["whole"]}, **pieces})


@dataclass(frozen=True)
class TrainingData:
    """The videos that changed a model's weights, those of the models it started from included."""

    train: VideoSet
    selection: VideoSet = field(default_factory=VideoSet)
    """Held-out videos that chose the epoch which was kept."""
    left_out: int = 0
    """Training videos without a fingerprint: gone when the model was saved, or beyond the largest number kept."""
    unknown: tuple[str, ...] = ()
    """Models it was initialised from whose training videos are not known."""

    def __or__(self, other: "TrainingData") -> "TrainingData":
        unknown = tuple(dict.fromkeys((*self.unknown, *other.unknown)))
        left_out = self.left_out + other.left_out
        return TrainingData(self.train | other.train, self.selection | other.selection, left_out, unknown)

    def save(self, folder: Path) -> None:
        values = {
            "format": FORMAT,
            "train": self.train.to_dict(),
            "selection": self.selection.to_dict(),
            "left_out": self.left_out,
            "unknown": self.unknown,
        }
        (folder / TRAINING_DATA).write_text(json.dumps(values) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "TrainingData | None":
        """What lies in a model's folder; None where nothing does. Raises `ValueError` for a file of another kind."""
        file = folder / TRAINING_DATA
        if not file.is_file():
            return None
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            if values["format"] != FORMAT:
                raise ValueError(f"of format {values['format']!r}; this is {FORMAT}")
            train, selection = (VideoSet.from_dict(values[part]) for part in ("train", "selection"))
            return cls(train, selection, int(values["left_out"]), tuple(values["unknown"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}: not a list of training videos ({error}); remove it to go without.") from error
