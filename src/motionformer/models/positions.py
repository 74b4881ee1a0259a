"""Position tables, interpolated in space and time to the clip at hand (method.md §2, §5).

Space is resized bicubically without antialiasing, as the released models expect; time linearly.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.models.tokens import Grid


class Positions(nn.Module, ABC):
    """`positions(grid) -> [1 p + n c]`: what to add to prefix and patch tokens."""

    @abstractmethod
    def forward(self, grid: Grid) -> Float[Tensor, "1 n c"]: ...


class SeparatePositions(Positions):
    """`space[row, column] + time[frame]`; prefix tokens have an entry of their own and no time."""

    def __init__(self, dim: int, grid: Grid, num_prefix_tokens: int) -> None:
        super().__init__()
        frames, self.rows, self.columns = grid
        self.prefix = nn.Parameter(torch.zeros(num_prefix_tokens, dim)) if num_prefix_tokens else None
        self.space = nn.Parameter(torch.zeros(self.rows * self.columns, dim))
        self.time = nn.Parameter(torch.zeros(frames, dim))

    def forward(self, grid: Grid) -> Float[Tensor, "1 n c"]:
        frames, rows, columns = grid
        space = resize_space(self.space, (self.rows, self.columns), (rows, columns))
        time = resize_time(self.time, frames)
        patches = (time[:, None] + space[None]).flatten(0, 1)
        return _with_prefix(self.prefix, patches)


class JointPositions(Positions):
    """One entry for every token of the clip."""

    def __init__(self, dim: int, grid: Grid, num_prefix_tokens: int) -> None:
        super().__init__()
        self.frames, self.rows, self.columns = grid
        self.prefix = nn.Parameter(torch.zeros(num_prefix_tokens, dim)) if num_prefix_tokens else None
        self.table = nn.Parameter(torch.zeros(self.frames * self.rows * self.columns, dim))

    def forward(self, grid: Grid) -> Float[Tensor, "1 n c"]:
        frames, rows, columns = grid
        table = self.table.unflatten(0, (self.frames, -1))
        if (rows, columns) != (self.rows, self.columns):
            here = (self.rows, self.columns)
            table = torch.stack([resize_space(frame, here, (rows, columns)) for frame in table])
        table = resize_time(table.flatten(1), frames)
        return _with_prefix(self.prefix, table.reshape(frames * rows * columns, -1))


def resize_space(
    table: Float[Tensor, "s c"], here: tuple[int, int], there: tuple[int, int]
) -> Float[Tensor, "{there[0]*there[1]} c"]:
    """A table over a grid of `here` rows and columns, resized to `there`."""
    if here == there:
        return table
    image = rearrange(table, "(y x) c -> 1 c y x", y=here[0])
    image = F.interpolate(image, size=there, mode="bicubic", align_corners=False)
    return rearrange(image, "1 c y x -> (y x) c")


def resize_time(table: Float[Tensor, "f c"], frames: int) -> Float[Tensor, "{frames} c"]:
    """A table over frames, stretched or squeezed to `frames`."""
    if table.shape[0] == frames:
        return table
    line = rearrange(table, "f c -> 1 c f")
    line = F.interpolate(line, size=frames, mode="linear", align_corners=False)
    return rearrange(line, "1 c f -> f c")


def _with_prefix(prefix: Tensor | None, patches: Tensor) -> Tensor:
    return (patches if prefix is None else torch.cat((prefix, patches)))[None]
