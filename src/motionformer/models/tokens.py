"""Clip → tokens, one linear map of each tubelet of pixels, and their position embeddings (method.md §2, §5).

Square tokens are tubelets of one frame, cubic tokens of two or more; the map is the same. Position embeddings are
interpolated to the clip at hand: space bicubically without antialiasing, as the released models expect; time linearly.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.attention.projection import is_plain
from motionformer.errors import ClipSizeError

Grid = tuple[int, int, int]
"""Token frames, rows, columns."""


class Tokens(nn.Module):
    """`[b 3 t H W] -> [b n c]`, ordered frame, row, column.

    The weight has the layout of a 3-D convolution whose kernel is its stride, which is what it is; computed as one
    matrix product because the patches do not overlap. A convolution that is wrapped, hooked or parametrised is called.
    """

    def __init__(self, dim: int, patch: int, tubelet: int) -> None:
        super().__init__()
        self.patch = patch
        self.tubelet = tubelet
        self.proj = nn.Conv3d(3, dim, kernel_size=(tubelet, patch, patch), stride=(tubelet, patch, patch))

    def grid(self, clip: Float[Tensor, "b 3 t H W"]) -> Grid:
        """The token grid of a clip; raises `ClipSizeError` where it does not divide into tokens."""
        if not isinstance(clip, Tensor) or not clip.is_floating_point():
            kind = clip.dtype if isinstance(clip, Tensor) else f"a {type(clip).__name__}"
            raise TypeError(
                f"a model takes a tensor of normalised floats [b 3 t H W], not {kind}: bytes become them with "
                "eval_transform(model.config.input), and Predictor takes videos and frames as they are."
            )
        if clip.ndim != 5 or clip.shape[1] != 3:
            raise ClipSizeError(f"a batch of clips is [b 3 t H W]; this one is {list(clip.shape)}.")
        t, height, width = clip.shape[2:]
        if t % self.tubelet or height % self.patch or width % self.patch:
            raise ClipSizeError(
                f"a clip of {t} frames of {height} × {width} does not divide into tokens of {self.tubelet} frames of "
                f"{self.patch} × {self.patch}: crop or resize it to multiples of these."
            )
        return t // self.tubelet, height // self.patch, width // self.patch

    def forward(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b n c"]:
        self.grid(clip)
        if not is_plain(self.proj, nn.Conv3d):
            tokens: Tensor = self.proj(clip)
            return rearrange(tokens, "b c f y x -> b (f y x) c")
        patches = rearrange(
            clip,
            "b c (f t) (y py) (x px) -> b (f y x) (c t py px)",
            t=self.tubelet,
            py=self.patch,
            px=self.patch,
        )
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class SeparatePositions(nn.Module):
    """A spatial and a temporal position embedding: `positions(grid) -> [1 p + n c]`, to be added to the tokens.

    `space[row, column] + time[frame]`; prefix tokens have an entry of their own and no time.
    """

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


class JointPositions(nn.Module):
    """A joint space-time position embedding: one entry for every token of the clip."""

    table: Tensor

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


class SinePositions(JointPositions):
    """A joint position embedding of sines and cosines, which is not learnt (VideoMAE): tokens are counted one by one.

    Prefix tokens get none. Clips of another size get the embedding interpolated, as a learnt one.
    """

    def __init__(self, dim: int, grid: Grid, num_prefix_tokens: int) -> None:
        super().__init__(dim, grid, 0)
        self.num_prefix_tokens = num_prefix_tokens
        del self._parameters["table"]
        rates = 10000.0 ** -(2 * (torch.arange(dim, dtype=torch.float64) // 2) / dim)
        angles = torch.arange(grid[0] * grid[1] * grid[2], dtype=torch.float64)[:, None] * rates
        is_sine = torch.arange(dim) % 2 == 0
        self.register_buffer("table", torch.where(is_sine, angles.sin(), angles.cos()).float(), persistent=False)

    def forward(self, grid: Grid) -> Float[Tensor, "1 n c"]:
        return F.pad(super().forward(grid), (0, 0, self.num_prefix_tokens, 0))


class TimePositions(nn.Module):
    """A temporal position embedding alone, for models whose attention knows rows and columns by rotary positions."""

    def __init__(self, dim: int, grid: Grid, num_prefix_tokens: int) -> None:
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens
        self.time = nn.Parameter(torch.zeros(grid[0], dim))

    def forward(self, grid: Grid) -> Float[Tensor, "1 n c"]:
        patches = resize_time(self.time, grid[0]).repeat_interleave(grid[1] * grid[2], dim=0)
        return F.pad(patches, (0, 0, self.num_prefix_tokens, 0))[None]


class NoPositions(nn.Module):
    """Nothing is added: rotary positions are enough."""

    zero: Tensor

    def __init__(self, dim: int, grid: Grid, num_prefix_tokens: int) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(1, 1, 1), persistent=False)

    def forward(self, grid: Grid) -> Float[Tensor, "1 1 1"]:
        return self.zero


Positions = SeparatePositions | JointPositions | TimePositions | NoPositions
POSITIONS: dict[str, type[Positions]] = {
    "separate": SeparatePositions,
    "joint": JointPositions,
    "sine": SinePositions,
    "time": TimePositions,
    "none": NoPositions,
}


def resize_space(
    table: Float[Tensor, "s c"], here: tuple[int, int], there: tuple[int, int]
) -> Float[Tensor, "{there[0]*there[1]} c"]:
    """A spatial position embedding of `here` rows and columns, resized to `there`."""
    if here == there:
        return table
    image = rearrange(table, "(y x) c -> 1 c y x", y=here[0])
    image = F.interpolate(image, size=there, mode="bicubic", align_corners=False)
    return rearrange(image, "1 c y x -> (y x) c")


def resize_time(table: Float[Tensor, "f c"], frames: int) -> Float[Tensor, "{frames} c"]:
    """A temporal position embedding, resized to `frames`."""
    if table.shape[0] == frames:
        return table
    line = rearrange(table, "f c -> 1 c f")
    line = F.interpolate(line, size=frames, mode="linear", align_corners=False)
    return rearrange(line, "1 c f -> f c")


def _with_prefix(prefix: Tensor | None, patches: Tensor) -> Tensor:
    return (patches if prefix is None else torch.cat((prefix, patches)))[None]
