"""Rotary positions: queries and keys are turned by angles that grow with their position, so that products of the two
depend on how far apart they are. Nothing is learnt, and nothing is added to the tokens.

A scheme that is given one turns its patch tokens; prefix tokens have no position. Schemes know frames and the number of
patches in one: rows and columns are those that the model was made for, or a square.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.errors import ClipSizeError


class RotaryPositions(nn.Module, ABC):
    """`rotary(q, frames, p)`: queries or keys `[b h p + f·s d]`, all but the first `p` turned.

    Args:
        head_dim: channels of a head.
        shape: rows and columns of patches that the model was made for.
    """

    def __init__(self, head_dim: int, shape: tuple[int, int]) -> None:
        super().__init__()
        if head_dim % self.unit:
            raise ValueError(f"rotary positions need heads of a multiple of {self.unit} channels, not {head_dim}.")
        self.head_dim = head_dim
        self.shape = shape

    unit: int
    """Heads have a multiple of this many channels."""

    @abstractmethod
    def angles(self, frames: int, rows: int, columns: int) -> Float[Tensor, "n d"]:
        """Of every patch token and channel; zero leaves a channel as it is."""

    @abstractmethod
    def turn(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        """`x` turned by a right angle."""

    def forward(self, x: Float[Tensor, "b h n d"], frames: int, num_prefix_tokens: int) -> Float[Tensor, "b h n d"]:
        p = num_prefix_tokens
        rows, columns = self.rows_and_columns((x.shape[2] - p) // frames)
        angles = self.angles(frames, rows, columns).to(x.device)
        patches = x[:, :, p:]
        turned = patches * angles.cos().to(x.dtype) + self.turn(patches) * angles.sin().to(x.dtype)
        return torch.cat((x[:, :, :p], turned), dim=2) if p else turned

    def rows_and_columns(self, patches: int) -> tuple[int, int]:
        """Of a frame of so many patches."""
        if patches == self.shape[0] * self.shape[1]:
            return self.shape
        side = math.isqrt(patches)
        if side * side != patches:
            raise ClipSizeError(self._refusal(f"{patches} patches are no square"))
        return side, side

    def check_shape(self, rows: int, columns: int) -> None:
        """Raise `ClipSizeError` where a frame of this shape would be taken for one of another."""
        if (rows, columns) != self.shape and (rows != columns or rows * columns == self.shape[0] * self.shape[1]):
            raise ClipSizeError(self._refusal(f"this clip has {rows} × {columns}"))

    def _refusal(self, what: str) -> str:
        return (
            f"a model with rotary positions takes frames of the {self.shape[0]} × {self.shape[1]} patches that it is "
            f"made for, or square ones: {what}. Load it with the size of the clips (`size`)."
        )


class SpaceTimeRotary(RotaryPositions):
    """As in V-JEPA 2: a third of the channels each for frame, row and column, what is left over stays as it is.

    Neighbouring channels are turned together; their two frequencies differ, as in the published models.
    """

    unit = 2

    def angles(self, frames: int, rows: int, columns: int) -> Float[Tensor, "n d"]:
        third = self.head_dim // 3 // 2
        omega = 10000.0 ** -(torch.arange(third) / third) if third else torch.zeros(0)
        positions = torch.meshgrid(torch.arange(frames), torch.arange(rows), torch.arange(columns), indexing="ij")
        thirds = [repeat(axis.flatten()[:, None] * omega, "n d -> n (two d)", two=2) for axis in positions]
        rest = torch.zeros(frames * rows * columns, self.head_dim - 6 * third)
        return torch.cat((*thirds, rest), dim=1)

    def turn(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((-second, first), dim=-1).flatten(-2)


class SpaceRotary(RotaryPositions):
    """As in DINOv3: rows and columns, from −1 to 1 over a frame of any size; time makes no difference.

    Each channel of the first half is turned with its counterpart in the second.
    """

    unit = 4

    def angles(self, frames: int, rows: int, columns: int) -> Float[Tensor, "n d"]:
        omega = 100.0 ** -(torch.arange(self.head_dim // 4) * (4 / self.head_dim))
        axes = [2 * (torch.arange(length) + 0.5) / length - 1 for length in (rows, columns)]
        positions = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        angles = 2 * math.pi * positions[..., None] * omega
        return repeat(rearrange(angles, "y x two d -> (y x) (two d)"), "s d -> (f s) (two d)", f=frames, two=2)

    def turn(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)


def set_shape(model: nn.Module, rows: int, columns: int) -> None:
    """From now on `model` is given frames of so many patches; without rotary positions nothing changes."""
    for module in model.modules():
        if isinstance(module, RotaryPositions):
            module.shape = (rows, columns)


ROTARY: dict[str, type[RotaryPositions] | None] = {"none": None, "space": SpaceRotary, "space_time": SpaceTimeRotary}


def build_rotary(config: Any) -> RotaryPositions | None:
    """The rotary positions of a `ModelConfig`, if it has any."""
    if config.rotary not in ROTARY:
        raise ValueError(f"`rotary` must be one of {', '.join(ROTARY)}; not {config.rotary!r}.")
    kind = ROTARY[config.rotary]
    return None if kind is None else kind(config.dim // config.num_heads, config.grid[1:])
