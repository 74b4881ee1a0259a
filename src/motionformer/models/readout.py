"""Tokens → what the head sees: the class token, or the class token and where everything is going."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.models.tokens import Grid

GAIN = 10.0
"""Moments of tokens are small beside the class token: products of centred times and places mostly cancel."""


class ClassReadout(nn.Module):
    """The class token (method.md §2); without one, the mean of the patch tokens."""

    width = 1
    """Vectors of the model's width that come out."""

    def __init__(self, num_prefix_tokens: int) -> None:
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b c"]:
        return tokens[:, 0] if self.num_prefix_tokens else tokens.mean(dim=1)


class MotionReadout(nn.Module):
    """The class token, and of every channel the moments time × row and time × column over the patch tokens.

    Of a channel that answers to hands, time × column is positive where a hand goes right, negative where it goes left,
    and near zero where it rests. An image model knows hands and no order of frames: with these moments a linear head
    can tell a swipe's direction at once, where a class token must first learn to look at places by time.
    """

    width = 3

    def __init__(self, num_prefix_tokens: int) -> None:
        super().__init__()
        self.first = ClassReadout(num_prefix_tokens)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b 3*c"]:
        weights = motion_weights(grid).to(tokens)
        moments = torch.einsum("kn,bnc->bkc", weights, tokens[:, self.first.num_prefix_tokens :])
        return torch.cat((self.first(tokens, grid), GAIN * moments.flatten(1)), dim=1)


def motion_weights(grid: Grid) -> Float[Tensor, "2 n"]:
    """Centred time × row and time × column of each patch, for means over patches: of size one in the mean square.

    Zero where there is one frame, one row or one column: nothing moves there. They do not grow with the clip.
    """
    time, row, column = torch.meshgrid(*(_centred(length) for length in grid), indexing="ij")
    return torch.stack((time * row, time * column)).flatten(1) / (grid[0] * grid[1] * grid[2])


def _centred(length: int) -> Float[Tensor, " length"]:
    """Positions with mean zero and mean square one."""
    places = torch.arange(length, dtype=torch.float32) - (length - 1) / 2
    return places / places.square().mean().sqrt() if length > 1 else places
