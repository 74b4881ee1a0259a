"""Clip → tokens: one linear map of each tubelet of pixels (method.md §2).

Square tokens are tubelets of one frame, cubic tokens of two or more; the map is the same.
"""

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
        """The token grid of a clip, or an error that says what does not divide."""
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
