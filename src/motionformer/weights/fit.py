"""Load named tensors into a model: as they are, resized, or newly initialised, with a report; else an error."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from motionformer.errors import CheckpointError
from motionformer.models.motionformer import Motionformer
from motionformer.models.tokens import resize_space, resize_time

PER_CLASS = ("head.classifier.", "head.classifiers.")
_POSITIONS = ("positions.time", "positions.space", "positions.table")


@dataclass(repr=False)
class LoadReport:
    """What happened to each tensor on the way from a file into a model. `str` gives it line by line.

    Args:
        source: where the tensors are from.
        loaded: how many were loaded, resized ones included.
        resized: interpolated to another clip size, frame count or patch size, with the reason.
        reset: newly initialised parameters, with the reason.
        dropped: in the file, not in the model, with the reason.
        notes: anything else worth knowing.

    Example:
        >>> model, report = load_model_with_report("motion-tiny", frames=16)
        >>> report.resized
        {'positions.time': '4 frames to 8'}
    """

    source: str
    loaded: int = 0
    resized: dict[str, str] = field(default_factory=dict)
    reset: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether any parameter was resized or newly initialised."""
        return bool(self.resized or self.reset)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, name))} {name}" for name in ("resized", "reset", "dropped"))
        return f"LoadReport({self.source!r}: {self.loaded} tensors loaded, {counts})"

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.loaded} tensors loaded"]
        for title, entries in (("resized", self.resized), ("reset", self.reset), ("dropped", self.dropped)):
            lines += [f"  {title}: {', '.join(names)} ({reason})" for reason, names in _by_reason(entries).items()]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def fit_tensors(
    model: Motionformer,
    tensors: Mapping[str, Tensor],
    grid: tuple[int, int, int],
    report: LoadReport,
    *,
    may_reset: tuple[str, ...] = (),
) -> None:
    """Load `tensors` into `model`. `grid` is the size of their position embeddings: frames, rows, columns.

    Position embeddings are interpolated to the model's. Parameters whose name contains one of `may_reset` stay newly
    initialised if the file lacks them; so do classifiers among them (`PER_CLASS`) of other classes. A tensor that is
    missing, left over or of another shape is an error that names it.
    """
    wanted = model.state_dict()
    other_classes = tuple(prefix for prefix in PER_CLASS if any(part in prefix for part in may_reset))
    fitted: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name not in wanted:
            if name.startswith(other_classes):
                report.dropped[name] = "the model has other classes"
                continue
            raise CheckpointError(f"{report.source}: the model has no tensor {name!r}.")
        _check_position_grid(name, value, grid, report.source)
        there, here = tuple(wanted[name].shape), tuple(value.shape)
        if here == there:
            fitted[name] = value
        elif name.startswith(other_classes) and here[1:] == there[1:]:
            report.reset[name] = f"{here[0]} classes in the file, {there[0]} in the model"
        elif name in _POSITIONS and here[1:] == there[1:]:
            fitted[name] = _resize_positions(name, value, grid, model.positions)
            unit = "frames" if name == "positions.time" else "positions"
            report.resized[name] = f"{here[0]} {unit} to {there[0]}"
        else:
            raise CheckpointError(f"{report.source}: tensor {name!r} is {here}, the model needs {there}.")
    for name in sorted(wanted.keys() - fitted.keys() - report.reset.keys()):
        if any(part in name for part in may_reset):
            report.reset[name] = "not in the file"
        else:
            missing = sorted(wanted.keys() - fitted.keys() - report.reset.keys())
            raise CheckpointError(f"{report.source}: tensor {name!r} is missing ({len(missing)} are, in all).")
    for name, value in fitted.items():
        _check_values(name, value, report.source)
    model.load_state_dict(fitted, strict=False)
    report.loaded = len(fitted)


def _check_values(name: str, value: Tensor, source: str) -> None:
    if not value.is_floating_point():
        kind = str(value.dtype).removeprefix("torch.")
        raise CheckpointError(
            f"{source}: tensor {name!r} is {kind}, no floating-point numbers: quantised weights cannot be read; give "
            "those that they were made from."
        )
    broken = value.numel() - int(torch.isfinite(value if value.itemsize > 1 else value.float()).sum())
    if broken:
        raise CheckpointError(
            f"{source}: {broken:,} of {value.numel():,} values of tensor {name!r} are infinite or not a number: the "
            "weights are broken."
        )


def _check_position_grid(name: str, value: Tensor, grid: tuple[int, int, int], source: str) -> None:
    if name not in _POSITIONS:
        return
    frames, rows, columns = grid
    entries = {"positions.time": frames, "positions.space": rows * columns}.get(name, frames * rows * columns)
    if value.ndim != 2 or len(value) != entries:
        raise CheckpointError(
            f"{source}: tensor {name!r} is {tuple(value.shape)}, but a model for {frames} × {rows} × {columns} tokens, "
            f"as it is described, has {entries} entries there: the weights do not match their configuration."
        )


def _resize_positions(name: str, value: Tensor, here: tuple[int, int, int], positions: nn.Module) -> Tensor:
    frames, rows, columns = here
    if name == "positions.time":
        time: nn.Parameter = positions.time  # type: ignore[assignment]
        return resize_time(value, time.shape[0])
    there: tuple[int, int] = (positions.rows, positions.columns)  # type: ignore[assignment]
    if name == "positions.space":
        return resize_space(value, (rows, columns), there)
    from_frames = value.unflatten(0, (frames, rows * columns))
    resized = [resize_space(frame, (rows, columns), there).flatten() for frame in from_frames]
    frames_there: int = positions.frames  # type: ignore[assignment]
    return resize_time(torch.stack(resized), frames_there).reshape(-1, value.shape[1])


def _by_reason(entries: dict[str, str]) -> dict[str, list[str]]:
    """Names under their reason; the blocks of one kind become one name, `blocks.*`."""
    reasons: dict[str, list[str]] = {}
    for name, reason in entries.items():
        parts = name.split(".")
        short = ".".join("*" if part.isdigit() else part for part in parts)
        if short not in reasons.setdefault(reason, []):
            reasons[reason].append(short)
    return reasons
