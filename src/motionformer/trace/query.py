"""The geometry of a query: a pixel of a frame as it was decoded → a token, and tokens back to pixels.

A frame is resized until it covers the model's input and cut in the middle (`eval_transform`); what is left is a grid of
patches. Points are (x, y) from the upper left corner, and the first pixel reaches from 0 to 1. Knows no attention.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from motionformer.errors import TraceError
from motionformer.models import ModelConfig
from motionformer.video.transforms.geometry import Size, cover, middle, released_cover

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class Query:
    """A point of a frame, and the token that holds it."""

    x: float
    y: float
    frame: int
    """Which frame of the clip, from 0."""
    token_frame: int
    row: int
    column: int
    token: int
    """Its number among the patch tokens of the clip; prefix tokens come before them."""


@dataclass(frozen=True)
class Geometry:
    """How the frames of a clip become a grid of patches. Sizes are (height, width)."""

    frame: Size
    resized: Size
    corner: Size
    """Top and left of the crop in the resized frame."""
    rows: int
    columns: int
    patch: int
    tubelet: int

    @property
    def scale(self) -> Point:
        """Pixels of the frame to a pixel of the model's input, along x and y."""
        return self.frame[1] / self.resized[1], self.frame[0] / self.resized[0]

    @property
    def patch_size(self) -> Point:
        """Width and height of a patch in pixels of the frame."""
        return self.patch * self.scale[0], self.patch * self.scale[1]

    @property
    def visible(self) -> Box:
        """The part of the frame that the model sees, in pixels of the frame."""
        (across, down), (top, left) = self.scale, self.corner
        width, height = self.patch_size
        return (
            left * across,
            top * down,
            left * across + self.columns * width,
            top * down + self.rows * height,
        )

    def places(self) -> Float64[Tensor, "s 2"]:
        """The centre (x, y) of every patch in pixels of the frame, row by row."""
        left, top, _, _ = self.visible
        width, height = self.patch_size
        y, x = torch.meshgrid(
            top + height * (torch.arange(self.rows, dtype=torch.float64) + 0.5),
            left + width * (torch.arange(self.columns, dtype=torch.float64) + 0.5),
            indexing="ij",
        )
        return torch.stack((x.flatten(), y.flatten()), dim=1)

    def patch_at(self, x: float, y: float) -> tuple[int, int]:
        """Row and column of the patch that holds a point, or an error that says what can be asked for."""
        height, width = self.frame
        if not (0 <= x < width and 0 <= y < height):
            raise TraceError(
                f"the point {x:g},{y:g} is outside the frame: its frames are {width} × {height} pixels, "
                f"so x is 0 to {width - 1} and y is 0 to {height - 1}."
            )
        left, top, right, bottom = self.visible
        if not (left <= x < right and top <= y < bottom):
            raise TraceError(
                f"the point {x:g},{y:g} is cut off before the model sees it: of frames of {width} × {height} pixels it "
                f"sees the middle, x from {left:.4g} to {right:.4g} and y from {top:.4g} to {bottom:.4g}."
            )
        column, row = int((x - left) / self.patch_size[0]), int((y - top) / self.patch_size[1])
        return min(row, self.rows - 1), min(column, self.columns - 1)

    def query(self, at: Point, frame: int) -> Query:
        """The token of the point `at` in frame `frame` of the clip."""
        row, column = self.patch_at(*at)
        token_frame = frame // self.tubelet
        token = (token_frame * self.rows + row) * self.columns + column
        return Query(float(at[0]), float(at[1]), frame, token_frame, row, column, token)


def find_geometry(config: ModelConfig, frame: Size) -> Geometry:
    """What `eval_transform` does to frames of this size before the model's tokens are cut from them."""
    want = config.input.height, config.input.width
    resized = released_cover(frame, want) if config.input.protocol == "released" else cover(frame, want)
    return Geometry(
        frame=frame,
        resized=resized,
        corner=(middle(resized[0] - want[0]), middle(resized[1] - want[1])),
        rows=want[0] // config.patch,
        columns=want[1] // config.patch,
        patch=config.patch,
        tubelet=config.tubelet,
    )
