"""Tokens → what the head sees (readout) → logits (method.md §2).

Logits always: softmax happens once, where views are averaged.
"""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.attention import JointAttention
from motionformer.models.block import Block
from motionformer.models.config import ActivationKind, ModelConfig, ReadoutKind
from motionformer.models.tokens import Grid

_ACTIVATIONS: dict[ActivationKind, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU}
_GAIN = 10.0
"""Moments of tokens are small beside the class token: products of centred times and positions mostly cancel."""


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
    can tell a swipe's direction at once, where a class token must first learn to relate positions to time.
    """

    width = 3

    def __init__(self, num_prefix_tokens: int) -> None:
        super().__init__()
        self.first = ClassReadout(num_prefix_tokens)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b 3*c"]:
        weights = _motion_weights(grid).to(tokens)
        moments = torch.einsum("kn,bnc->bkc", weights, tokens[:, self.first.num_prefix_tokens :])
        return torch.cat((self.first(tokens, grid), _GAIN * moments.flatten(1)), dim=1)


class FrameReadout(nn.Module):
    """A vector per token frame: one more transformer layer reads a learnt token and the patch tokens of each frame.

    Only the learnt token's row of the layer is computed: nobody reads the others.
    """

    width = 1

    def __init__(self, num_prefix_tokens: int, dim: int, num_heads: int, mlp_ratio: float = 4.0) -> None:
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.layer = Block(dim, JointAttention(dim, num_heads, num_prefix_tokens=1), mlp_ratio)
        nn.init.trunc_normal_(self.token, std=0.02)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b {grid[0]} c"]:
        patches = rearrange(tokens[:, self.num_prefix_tokens :], "b (f s) c -> (b f) s c", f=grid[0])
        token = self.token.expand(len(patches), -1, -1)
        layer, first = self.layer, self.layer.norm1(token)
        x = token + layer.attn(first, context=torch.cat((first, layer.norm1(patches)), dim=1))
        return (x + layer.mlp(layer.norm2(x))).view(len(tokens), grid[0], -1)  # type: ignore[no-any-return]


Readout = ClassReadout | MotionReadout | FrameReadout
READOUTS: dict[ReadoutKind, type[Readout]] = {"class": ClassReadout, "motion": MotionReadout, "frames": FrameReadout}


def build_readout(config: ModelConfig) -> Readout:
    """Tokens → what the head sees."""
    kind = READOUTS.get(config.readout)
    if kind is None:
        raise ValueError(f"`readout` must be one of {', '.join(READOUTS)}; not {config.readout!r}.")
    if issubclass(kind, FrameReadout):
        return kind(config.num_prefix_tokens, config.dim, config.num_heads, config.mlp_ratio)
    return kind(config.num_prefix_tokens)


def build_head(config: ModelConfig) -> nn.Module:
    """Readout → logits, for one head or several."""
    width = READOUTS[config.readout].width * config.dim
    hidden = _HiddenLayer(width, config.dim, config.head_activation) if config.hidden_head else nn.Identity()
    features = config.dim if config.hidden_head else width
    if isinstance(config.num_classes, dict):
        return _MultiHead(features, config.num_classes, hidden, config.head_dropout)
    return _Head(features, config.num_classes, hidden, config.head_dropout)


class _Head(nn.Module):
    """Optional hidden layer, dropout, classifier; without classes it returns the features."""

    def __init__(self, dim: int, num_classes: int, hidden: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = hidden
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(dim, num_classes) if num_classes > 0 else nn.Identity()

    def forward(self, x: Float[Tensor, "b *f c"]) -> Float[Tensor, "b *f k"]:
        return self.classifier(self.dropout(self.hidden(x)))  # type: ignore[no-any-return]


class _MultiHead(nn.Module):
    """Several classifiers over the same features, by name: EPIC-Kitchens has `verb` and `noun`."""

    def __init__(self, dim: int, num_classes: dict[str, int], hidden: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = hidden
        self.dropout = nn.Dropout(dropout)
        self.classifiers = nn.ModuleDict({name: nn.Linear(dim, k) for name, k in num_classes.items()})

    def forward(self, x: Float[Tensor, "b c"]) -> dict[str, Float[Tensor, "b _"]]:
        x = self.dropout(self.hidden(x))
        return {name: classifier(x) for name, classifier in self.classifiers.items()}


class _HiddenLayer(nn.Module):
    """Linear and activation in front of the classifier."""

    def __init__(self, width: int, dim: int, activation: ActivationKind) -> None:
        super().__init__()
        self.fc = nn.Linear(width, dim)
        self.act = _ACTIVATIONS[activation]()

    def forward(self, x: Float[Tensor, "b w"]) -> Float[Tensor, "b c"]:
        return self.act(self.fc(x))  # type: ignore[no-any-return]


def _motion_weights(grid: Grid) -> Float[Tensor, "2 n"]:
    """Centred time × row and time × column of each patch, for means over patches: of size one in the mean square.

    Zero where there is one frame, one row or one column: nothing moves there. They do not grow with the clip.
    """
    time, row, column = torch.meshgrid(*(_centred(length) for length in grid), indexing="ij")
    return torch.stack((time * row, time * column)).flatten(1) / (grid[0] * grid[1] * grid[2])


def _centred(length: int) -> Float[Tensor, " length"]:
    """Positions with mean zero and mean square one."""
    positions = torch.arange(length, dtype=torch.float32) - (length - 1) / 2
    return positions / positions.square().mean().sqrt() if length > 1 else positions
