"""Fit named tensors into a model: as they are, resized, or reset, and say which; anything else is an error."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from motionformer.errors import CheckpointError
from motionformer.models.motionformer import Motionformer
from motionformer.models.tokens import resize_space, resize_time
from motionformer.weights.report import LoadReport

PER_CLASS = ("head.classifier.", "head.classifiers.")
TABLES = ("positions.time", "positions.space", "positions.table")


def fit_tensors(
    model: Motionformer,
    tensors: Mapping[str, Tensor],
    grid: tuple[int, int, int],
    report: LoadReport,
    *,
    may_reset: tuple[str, ...] = (),
) -> None:
    """Load `tensors` into `model`. `grid` is the size of their position tables: frames, rows, columns.

    Tables are interpolated to the model's. Parameters whose name holds one of `may_reset` keep their random start if
    the file lacks them; so do classifiers among them (`PER_CLASS`) that are there for other classes. A tensor that is
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
            raise CheckpointError(f"{report.source}: tensor {name!r} has no place in the model.")
        _check_places(name, value, grid, report.source)
        there, here = tuple(wanted[name].shape), tuple(value.shape)
        if here == there:
            fitted[name] = value
        elif name.startswith(other_classes) and here[1:] == there[1:]:
            report.reset[name] = f"{here[0]} classes in the file, {there[0]} in the model"
        elif name in TABLES and here[1:] == there[1:]:
            fitted[name] = _resize_table(name, value, grid, model.positions)
            report.resized[name] = f"{here[0]} places to {there[0]}"
        else:
            raise CheckpointError(f"{report.source}: tensor {name!r} is {here}, the model needs {there}.")
    for name in sorted(wanted.keys() - fitted.keys() - report.reset.keys()):
        if any(part in name for part in may_reset):
            report.reset[name] = "not in the file"
        else:
            missing = sorted(wanted.keys() - fitted.keys() - report.reset.keys())
            raise CheckpointError(f"{report.source}: tensor {name!r} is missing ({len(missing)} are, in all).")
    model.load_state_dict(fitted, strict=False)
    report.loaded = len(fitted)


def _check_places(name: str, value: Tensor, grid: tuple[int, int, int], source: str) -> None:
    """A position table has as many places as `grid` says, or it is not the table of that model."""
    if name not in TABLES:
        return
    frames, rows, columns = grid
    places = {"positions.time": frames, "positions.space": rows * columns}.get(name, frames * rows * columns)
    if value.ndim != 2 or len(value) != places:
        raise CheckpointError(
            f"{source}: tensor {name!r} is {tuple(value.shape)}, but a model for {frames} × {rows} × {columns} tokens, "
            f"as it is described, has {places} places there: the weights and their description do not belong together."
        )


def _resize_table(name: str, value: Tensor, here: tuple[int, int, int], positions: nn.Module) -> Tensor:
    """A position table of a grid of `here`, for the model's own grid."""
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
