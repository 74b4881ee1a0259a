"""One labelled piece of video, and a list of them. Every reader of this package returns these and nothing else.

Knows nothing of pixels or tensors: a record holds where a video is and what it shows, not how to decode it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from motionformer.errors import AnnotationError, MissingVideosError, VideoError
from motionformer.logging import show_count
from motionformer.video import Clock

# one class; any number of classes, also none; one class a task (verb and noun); or unknown (test lists)
Label = int | tuple[int, ...] | Mapping[str, int] | None
ClassNames = tuple[str, ...] | Mapping[str, tuple[str, ...]]
Sampling = Literal["any", "segments"]
Missing = Literal["error", "drop", "keep"]
SEPARATOR = "|"
"""Between the classes of a video that has several."""


@dataclass(frozen=True, slots=True)
class Record:
    """A video file or a folder of frames, its label, and, where it is a piece of a longer video, which piece."""

    path: Path
    label: Label = None
    start: float | None = None  # seconds
    end: float | None = None
    fps: float | None = None  # overrides the video's own: a folder of frames does not know its rate
    id: str = ""
    source: Path | None = None  # where this was written down, for messages
    line: int | None = None
    assumed_fps: float | None = None  # of a folder of frames, where the released program assumes another rate
    group: str = ""  # person, camera, day: what must not be in training and in a test

    def clock(self, clock: Clock) -> Clock:
        """The video's clock, unless the record brings a rate of its own."""
        return Clock(clock.num_frames, self.fps) if self.fps else clock

    def span(self, clock: Clock) -> range:
        """The frames that appear from `start` (included) to `end` (excluded), at least one. Raises `VideoError`."""
        clock = self.clock(clock)
        span = clock.span(self.start, self.end)
        self.check_begins(clock, bool(span))
        return span

    def check_begins(self, clock: Clock, begins: bool) -> None:
        """Raise `VideoError` unless the piece begins inside the video."""
        if not begins:
            reason = f"the piece begins at {self.start:g} s, but the video has only {clock.duration:.2f} s"
            raise VideoError(reason, self.path, line=self.line)


@dataclass(frozen=True)
class Annotations:
    """Records with the names of their classes. Made only if every record makes sense.

    `sampling="segments"` forbids clips at a fixed stride (Something-Something runs at 12 frames a second, a stride
    meant for 30 would repeat frames). `how` describes how the files were understood, `notes` what was odd about them.
    """

    records: tuple[Record, ...]
    class_names: ClassNames
    name: str
    split: str | None = None
    sampling: Sampling = "any"
    how: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.records:
            raise AnnotationError(f"{self.name} holds no video" + (f" for {self.split!r}." if self.split else "."))
        _check_several(self.records, self.class_names)
        seen: dict[object, Record] = {}
        for record in self.records:
            _check_times(record)
            _check_label(record, self.class_names)
            first = seen.setdefault(_identity(record), record)
            if first is not record:
                raise _error(record, f"the same as line {first.line} ({first.path}); remove one of them.")

    def __repr__(self) -> str:
        split = f" ({self.split})" if self.split else ""
        names = self.class_names
        counts = {"": names} if isinstance(names, tuple) else names
        classes = ", ".join(show_count(len(of), f"{task} class".strip()) for task, of in counts.items())
        return f"Annotations({self.name!r}{split}: {show_count(len(self), 'record')}, {classes})"

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def is_multi_label(self) -> bool:
        """Whether videos have any number of classes each."""
        return isinstance(self.records[0].label, tuple)  # as all others, or it was an error

    @property
    def num_classes(self) -> int | dict[str, int]:
        """As `ModelConfig.num_classes` wants it."""
        if isinstance(self.class_names, Mapping):
            return {task: len(names) for task, names in self.class_names.items()}
        return len(self.class_names)

    def label_name(self, label: Label) -> str:
        if label is None:
            return ""
        if isinstance(label, Mapping):
            assert isinstance(self.class_names, Mapping)
            return " ".join(self.class_names[task][index] for task, index in label.items())
        assert not isinstance(self.class_names, Mapping)
        return SEPARATOR.join(self.class_names[index] for index in classes_of(label))

    def counts(self) -> dict[str, int]:
        """Records of each class, also of classes with none; tasks are prefixed (`verb: take`)."""
        if isinstance(self.class_names, Mapping):
            found: Counter[str] = Counter()
            for record in self.records:
                for task, index in (record.label if isinstance(record.label, Mapping) else {}).items():
                    found[f"{task}: {self.class_names[task][index]}"] += 1
            names = [f"{task}: {name}" for task, of_task in self.class_names.items() for name in of_task]
        else:
            names = list(self.class_names)
            found = Counter(names[index] for record in self.records for index in classes_of(record.label))
        return {name: found[name] for name in names}

    def handle_missing(self, missing: Missing) -> "Annotations":
        """The same list after asking the file system: raise for files that are not there, drop them, or keep them."""
        if missing == "keep":
            return self
        there = {path: path.exists() for path in {record.path for record in self.records}}
        lost = [record for record in self.records if not there[record.path]]
        if not lost:
            return self
        total = f"{len(lost)} of {len(self)} videos are not there"
        if missing == "error" or len(lost) == len(self):
            advice = _how_to_go_on(lost[0]) if len(lost) < len(self) else "None is left to use."
            reason = f"no such video: {lost[0].path} ({total}); is the root folder right? {advice}"
            raise MissingVideosError(reason, lost[0].source, lost[0].line)
        kept = tuple(record for record in self.records if there[record.path])
        return replace(self, records=kept, notes=(*self.notes, f"{total}; left out, the first is {lost[0].path}"))


def classes_of(label: Label) -> tuple[int, ...]:
    """The classes of a label of one task: one, several, or none."""
    assert not isinstance(label, Mapping)
    return () if label is None else label if isinstance(label, tuple) else (label,)


def shown_classes(records: Iterable[Record]) -> set[int]:
    """The classes of one task that some record has."""
    return {label for record in records for label in classes_of(record.label)}


def _how_to_go_on(record: Record) -> str:
    what = "it" if record.line is None else "its line"
    drop = '`--missing drop` (finetune, data shard), missing="drop" in Python'
    return f"Remove {what}, or leave out what is not there: {drop}."


def _error(record: Record, reason: str) -> AnnotationError:
    return AnnotationError(reason, record.source, record.line)


def _identity(record: Record) -> object:
    label: object = tuple(sorted(record.label.items())) if isinstance(record.label, Mapping) else record.label
    if isinstance(record.label, tuple):
        label = None  # all classes of a piece are in one record: the same piece again contradicts it
    return record.id or (record.path, record.start, record.end, label)


def _check_times(record: Record) -> None:
    if record.start is not None and record.start < 0:
        raise _error(record, f"start is {record.start:g} s; it cannot be negative.")
    if record.end is not None and record.end <= (record.start or 0):
        raise _error(record, f"end ({record.end:g} s) is not after start ({record.start or 0:g} s).")
    if record.fps is not None and record.fps <= 0:
        raise _error(record, f"a frame rate of {record.fps:g} makes no sense.")


def _check_label(record: Record, class_names: ClassNames) -> None:
    if record.label is None:
        return
    if isinstance(record.label, Mapping):
        if not isinstance(class_names, Mapping) or record.label.keys() != class_names.keys():
            raise _error(record, f"labels are {set(record.label)}, the class list has {class_names!r}.")
        pairs = [(task, index, class_names[task]) for task, index in record.label.items()]
    else:
        if isinstance(class_names, Mapping):
            raise _error(record, f"one label, but the class list has the tasks {', '.join(class_names)}.")
        pairs = [("label", index, class_names) for index in classes_of(record.label)]
    for task, index, names in pairs:
        if not 0 <= index < len(names):
            raise _error(record, f"{task} {index} is outside the list of {len(names)} classes (0 to {len(names) - 1}).")
    several = classes_of(record.label) if isinstance(record.label, tuple) else ()
    twice = next((index for k, index in enumerate(several) if index in several[:k]), None)
    if twice is not None:
        raise _error(record, f"class {class_names[twice]!r} is given twice.")  # type: ignore[index]


def _check_several(records: tuple[Record, ...], class_names: ClassNames) -> None:
    """All videos have one class, or all have any number: they are trained and scored differently."""
    several = [record for record in records if isinstance(record.label, tuple)]
    if not several:
        return
    other = next((record for record in records if not isinstance(record.label, tuple)), None)
    if other is not None:
        raise _error(other, f"its label is {other.label!r}; other videos have any number of classes (a tuple).")
    wrong = next((name for name in class_names if SEPARATOR in name), None)
    if wrong is not None:
        raise _error(several[0], f"class {wrong!r} has a {SEPARATOR} in its name, which stands between classes.")
