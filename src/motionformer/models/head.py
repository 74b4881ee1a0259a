"""Tokens → what the head sees (readout) → logits (method.md §2).

Logits always: softmax happens once, where views are averaged.
"""

from typing import Any

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


class Readout(nn.Module):
    """Tokens → what the head sees: `readout(tokens, grid)`."""

    width = 1
    """Vectors of the model's width that come out."""
    has_norm = False
    """Whether the last norm is in here, and not in front of it."""

    def __init__(self, num_prefix_tokens: int) -> None:
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Readout":
        return cls(config.num_prefix_tokens)

    def macs(self, config: ModelConfig) -> float:
        """Multiply-adds of one clip by the paper's convention; picking and averaging count nothing."""
        return 0.0


class ClassReadout(Readout):
    """The class token (method.md §2); without one, the mean of the patch tokens."""

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b c"]:
        return tokens[:, 0] if self.num_prefix_tokens else tokens.mean(dim=1)


class MotionReadout(Readout):
    """The class token, and of every channel the moments time × row and time × column over the patch tokens.

    Of a channel that answers to hands, time × column is positive where a hand goes right, negative where it goes left,
    and near zero where it rests. An image model knows hands and no order of frames: with these moments a linear head
    can tell a swipe's direction at once, where a class token must first learn to relate positions to time.
    """

    width = 3

    def __init__(self, num_prefix_tokens: int) -> None:
        super().__init__(num_prefix_tokens)
        self.first = ClassReadout(num_prefix_tokens)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b 3*c"]:
        weights = _motion_weights(grid).to(tokens)
        moments = torch.einsum("kn,bnc->bkc", weights, tokens[:, self.num_prefix_tokens :])
        return torch.cat((self.first(tokens, grid), _GAIN * moments.flatten(1)), dim=1)


class FrameReadout(Readout):
    """A vector per token frame: one more transformer layer reads a learnt token and the patch tokens of each frame.

    Only the learnt token's row of the layer is computed: nobody reads the others.
    """

    def __init__(self, num_prefix_tokens: int, dim: int, num_heads: int, mlp_ratio: float = 4.0) -> None:
        super().__init__(num_prefix_tokens)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.layer = Block(dim, JointAttention(dim, num_heads, num_prefix_tokens=1), mlp_ratio)
        nn.init.trunc_normal_(self.token, std=0.02)

    @classmethod
    def from_config(cls, config: ModelConfig) -> "FrameReadout":
        return cls(config.num_prefix_tokens, config.dim, config.num_heads, config.mlp_ratio)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b {grid[0]} c"]:
        patches = rearrange(tokens[:, self.num_prefix_tokens :], "b (f s) c -> (b f) s c", f=grid[0])
        token = self.token.expand(patches.shape[0], -1, -1)
        layer, first = self.layer, self.layer.norm1(token)
        x = token + layer.attn(first, context=torch.cat((first, layer.norm1(patches)), dim=1))
        return (x + layer.mlp(layer.norm2(x))).view(tokens.shape[0], grid[0], -1)  # type: ignore[no-any-return]

    def macs(self, config: ModelConfig) -> float:
        """Of the layer with all its rows, as everywhere here."""
        f, rows, columns = config.grid
        return f * _block_macs(rows * columns + 1, config.dim, config.mlp_ratio)


class MeanReadout(Readout):
    """The mean of the patch tokens, and the last norm behind it instead of in front (VideoMAE)."""

    has_norm = True

    def __init__(self, num_prefix_tokens: int, dim: int) -> None:
        super().__init__(num_prefix_tokens)
        self.norm = nn.LayerNorm(dim)  # with the ε of PyTorch, whatever the model's own is

    @classmethod
    def from_config(cls, config: ModelConfig) -> "MeanReadout":
        return cls(config.num_prefix_tokens, config.dim)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b c"]:
        return self.norm(tokens[:, self.num_prefix_tokens :].mean(dim=1))  # type: ignore[no-any-return]

    def macs(self, config: ModelConfig) -> float:
        return 5.0 * config.dim


class AttentiveReadout(Readout):
    """What a learnt query attends to among all tokens, after `depth` blocks of their own (the probe of V-JEPA 2)."""

    def __init__(self, num_prefix_tokens: int, dim: int, num_heads: int, depth: int = 0, **options: Any) -> None:
        super().__init__(num_prefix_tokens)
        self.query = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.trunc_normal_(self.query, std=0.02)
        attention = (JointAttention(dim, num_heads, num_prefix_tokens=num_prefix_tokens) for _ in range(depth + 1))
        *layers, self.cross = (Block(dim, one, **options) for one in attention)
        self.blocks = nn.ModuleList(layers)
        self.cross.attn.proj = nn.Identity()

    @classmethod
    def from_config(cls, config: ModelConfig) -> "AttentiveReadout":
        options = {"norm_eps": config.norm_eps, "activation": config.activation}
        return cls(config.num_prefix_tokens, config.dim, config.num_heads, config.readout_depth, **options)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b c"]:
        for block in self.blocks:
            tokens = block(tokens, grid[0])
        query = self.query.repeat(tokens.shape[0], 1, 1)  # not `len`, which would fix the batch in an export
        x = query + self.cross.attn(query, context=self.cross.norm1(tokens))
        return (x + self.cross.mlp(self.cross.norm2(x)))[:, 0]  # type: ignore[no-any-return]

    def macs(self, config: ModelConfig) -> float:
        f, rows, columns = config.grid
        n, c = config.num_prefix_tokens + f * rows * columns, config.dim
        cross = c * c + 2 * n * c * c + 2 * n * c + 8 * c * c + 5 * (n + 1) * c
        return len(self.blocks) * _block_macs(n, c, 4.0) + cross


READOUTS: dict[ReadoutKind, type[Readout]] = {
    "class": ClassReadout,
    "motion": MotionReadout,
    "frames": FrameReadout,
    "mean": MeanReadout,
    "attentive": AttentiveReadout,
}


def build_readout(config: ModelConfig) -> Readout:
    """Tokens → what the head sees."""
    if config.readout not in READOUTS:
        raise ValueError(f"`readout` must be one of {', '.join(READOUTS)}; not {config.readout!r}.")
    return READOUTS[config.readout].from_config(config)


def _block_macs(n: int, c: int, mlp_ratio: float) -> float:
    """Of a block of joint attention over n tokens of c channels."""
    return 4 * n * c * c + 2 * n * n * c + 2 * mlp_ratio * n * c * c + 10 * n * c


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
