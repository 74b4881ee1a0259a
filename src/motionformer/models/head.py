"""Tokens → what the head sees (readout) → logits (method.md §2).

Logits always: softmax happens once, where views are averaged.
"""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.attention import SCHEMES, JointAttention, TrajectoryAttention
from motionformer.models.block import EPS, MLP, Block
from motionformer.models.config import ActivationKind, ModelConfig, ReadoutKind
from motionformer.models.tokens import Grid, SeparatePositions

_ACTIVATIONS: dict[ActivationKind, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU}
_GAIN = 10.0
"""Moments of tokens are small beside the class token: products of centred times and positions mostly cancel."""
_SHARPNESS = 0.02
"""Of the softmax that finds a token in the next frame: its cosines differ by a few hundredths."""


class Readout(nn.Module):
    """What the head sees of the tokens: `readout(tokens, grid)`."""

    has_norm = False
    """Whether the last norm is in here, and not in front of it."""

    @classmethod
    def of(cls, config: ModelConfig) -> "Readout":
        """For the tokens of such a model."""
        return cls()

    def width(self, dim: int, grid: Grid) -> int:
        """Numbers that come out, of tokens of width `dim`."""
        return dim

    def macs(self, config: ModelConfig) -> float:
        """Multiply-adds of one clip by the paper's convention, where there are layers."""
        return 0.0


class ClassReadout(Readout):
    """The class token (method.md §2), or the mean of the frames' class tokens; without any, the mean of all patches.

    Args:
        num_prefix_tokens: class token and registers.
        per_frame: whether the prefix tokens are those of each frame, in order (space-only attention).
    """

    def __init__(self, num_prefix_tokens: int, per_frame: bool = False) -> None:
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens
        self.per_frame = per_frame

    @classmethod
    def of(cls, config: ModelConfig) -> Readout:
        return cls(config.num_prefix_tokens, SCHEMES[config.attention].prefix_per_frame)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b _"]:
        if self.num_prefix_tokens and self.per_frame:
            return self.frame_vectors(tokens, grid).mean(dim=1)
        return tokens[:, 0] if self.num_prefix_tokens else tokens.mean(dim=1)

    def frame_vectors(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b {grid[0]} c"]:
        """The class token of each frame; where frames have none, the mean of its patches."""
        p = self.num_prefix_tokens
        if p and self.per_frame:
            return tokens[:, : p : p // grid[0]]
        patches: Tensor = rearrange(tokens[:, p:], "b (f s) c -> b f s c", f=grid[0])
        return patches.mean(dim=2)


class ConcatReadout(ClassReadout):
    """The vectors of all frames side by side: a linear head sees the order of the frames.

    It takes clips of the number of frames that it was made for.
    """

    def width(self, dim: int, grid: Grid) -> int:
        return dim * grid[0]

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b _"]:
        return self.frame_vectors(tokens, grid).flatten(1)


class MotionReadout(ClassReadout):
    """The class token, and of every channel the moments time × row and time × column over the patch tokens.

    Of a channel that answers to hands, time × column is positive where a hand goes right, negative where it goes left,
    and near zero where it rests. An image model knows hands and no order of frames: with these moments a linear head
    can tell a swipe's direction at once, where a class token must first learn to relate positions to time.
    """

    def width(self, dim: int, grid: Grid) -> int:
        return 3 * dim

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b _"]:
        weights = _motion_weights(grid).to(tokens)
        moments = torch.einsum("kn,bnc->bkc", weights, tokens[:, self.num_prefix_tokens :])
        return torch.cat((super().forward(tokens, grid), _GAIN * moments.flatten(1)), dim=1)


class PathReadout(MotionReadout):
    """What `MotionReadout` gives, and of every channel the mean displacement, in rows and columns, of its tokens.

    A patch token looks for itself in the next frame: a softmax over that frame's patches of their cosines to it, whose
    mean position is where it went. The step is a value of two numbers, weighted by the token, channel by channel.
    """

    def width(self, dim: int, grid: Grid) -> int:
        return 5 * dim

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b _"]:
        patches = rearrange(tokens[:, self.num_prefix_tokens :], "b (f s) c -> b f s c", f=grid[0])
        unit = F.normalize(patches, dim=-1)
        alike = torch.einsum("bfsc,bfuc->bfsu", unit[:, :-1], unit[:, 1:])
        positions = torch.cartesian_prod(_centred(grid[1]), _centred(grid[2])).to(tokens)
        steps = (alike / _SHARPNESS).softmax(dim=-1) @ positions - positions
        count = max(1, grid[0] - 1) * grid[1] * grid[2]
        carried = torch.einsum("bfsk,bfsc->bkc", steps, patches[:, :-1]) / count
        return torch.cat((super().forward(tokens, grid), _GAIN * carried.flatten(1)), dim=1)


class FrameReadout(Readout):
    """A vector per token frame: one more transformer layer reads a learnt token and the patch tokens of each frame.

    Only the learnt token's row of the layer is computed: nobody reads the others.
    """

    def __init__(self, num_prefix_tokens: int, dim: int, num_heads: int, mlp_ratio: float = 4.0) -> None:
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.layer = Block(dim, JointAttention(dim, num_heads, num_prefix_tokens=1), mlp_ratio)
        nn.init.trunc_normal_(self.token, std=0.02)

    @classmethod
    def of(cls, config: ModelConfig) -> Readout:
        return cls(config.num_prefix_tokens, config.dim, config.num_heads, config.mlp_ratio)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b {grid[0]} c"]:
        patches = rearrange(tokens[:, self.num_prefix_tokens :], "b (f s) c -> (b f) s c", f=grid[0])
        token = (self.token * 1.0).expand(patches.shape[0], -1, -1)  # times one, as in `Motionformer.embed`
        layer, first = self.layer, self.layer.norm1(token)
        x = token + layer.attn(first, context=torch.cat((first, layer.norm1(patches)), dim=1))
        x = x + layer.mlp(layer.norm2(x))
        return x.view(tokens.shape[0], grid[0], -1)  # type: ignore[no-any-return]

    def macs(self, config: ModelConfig) -> float:
        """Of the layer with all its rows, as everywhere here."""
        f, rows, columns = config.grid
        return f * _block_macs(rows * columns + 1, config.dim, config.mlp_ratio)


class MeanReadout(Readout):
    """The mean of the patch tokens, and the last norm behind it instead of in front (VideoMAE)."""

    has_norm = True

    def __init__(self, num_prefix_tokens: int, dim: int) -> None:
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens
        self.norm = nn.LayerNorm(dim)  # with the ε of PyTorch, whatever the model's own is

    @classmethod
    def of(cls, config: ModelConfig) -> Readout:
        return cls(config.num_prefix_tokens, config.dim)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b c"]:
        return self.norm(tokens[:, self.num_prefix_tokens :].mean(dim=1))  # type: ignore[no-any-return]

    def macs(self, config: ModelConfig) -> float:
        return 5.0 * config.dim


class AttentiveReadout(Readout):
    """What a learnt query attends to among all tokens, after `depth` blocks of their own (the probe of V-JEPA 2)."""

    def __init__(self, dim: int, num_heads: int, depth: int = 0, **options: Any) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.trunc_normal_(self.query, std=0.02)
        attention = (JointAttention(dim, num_heads, num_prefix_tokens=0) for _ in range(depth + 1))
        *layers, self.cross = (Block(dim, one, **options) for one in attention)
        self.blocks = nn.ModuleList(layers)
        self.cross.attn.proj = nn.Identity()

    @classmethod
    def of(cls, config: ModelConfig) -> Readout:
        options = {"norm_eps": config.norm_eps, "activation": config.activation}
        return cls(config.dim, config.num_heads, config.readout_depth, **options)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b c"]:
        for block in self.blocks:
            tokens = block(tokens, grid[0])
        query = (self.query * 1.0).expand(tokens.shape[0], -1, -1)  # times one, as in `Motionformer.embed`
        x = query + self.cross.attn(query, context=self.cross.norm1(tokens))
        return (x + self.cross.mlp(self.cross.norm2(x)))[:, 0]  # type: ignore[no-any-return]

    def macs(self, config: ModelConfig) -> float:
        f, rows, columns = config.grid
        n, c = config.num_prefix_tokens + f * rows * columns, config.dim
        cross = c * c + 2 * n * c * c + 2 * n * c + 8 * c * c + 5 * (n + 1) * c
        return len(self.blocks) * _block_macs(n, c, 4.0) + cross


class CrossReadout(ClassReadout):
    """One learnt query that reads the patch tokens in some blocks of cross-attention, each followed by an MLP.

    Keys and values are linear in the tokens, so that a query is taken to the tokens, not the tokens to it: a block
    costs two products with the tokens for each head, a hundredth of projecting them all.

    Args:
        num_prefix_tokens, per_frame: as in `ClassReadout`.
        dim: width of the tokens.
        num_heads: of the attention.
        frames: of a clip, where frames have learnt positions; 0 for none.
        blocks: how often the query reads.
    """

    def __init__(
        self, num_prefix_tokens: int, per_frame: bool, dim: int, num_heads: int, frames: int = 0, blocks: int = 1
    ) -> None:
        super().__init__(num_prefix_tokens, per_frame)
        self.query = nn.Parameter(torch.zeros(dim))
        self.time = nn.Parameter(torch.zeros(frames, dim)) if frames else None
        self.blocks = nn.ModuleList(_CrossBlock(dim, num_heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(dim, eps=EPS)
        nn.init.trunc_normal_(self.query, std=0.02)

    @classmethod
    def of(cls, config: ModelConfig) -> Readout:
        frames = config.grid[0] if config.readout_positions else 0
        per_frame, blocks = SCHEMES[config.attention].prefix_per_frame, max(1, config.readout_depth)
        return cls(config.num_prefix_tokens, per_frame, config.dim, config.num_heads, frames, blocks)

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b _"]:
        patches = tokens[:, self.num_prefix_tokens :]
        if self.time is not None:
            patches = patches + self.time.repeat_interleave(grid[1] * grid[2], dim=0)
        x = self.query.expand(len(tokens), -1)
        for block in self.blocks:
            x = block(x, patches)
        return self.norm(x)  # type: ignore[no-any-return]

    def macs(self, config: ModelConfig) -> float:
        f, rows, columns = config.grid
        c, h = config.dim, config.num_heads
        return len(self.blocks) * (2.0 * f * rows * columns * c * h + 12 * c * c)


class _CrossBlock(nn.Module):
    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        width = dim // num_heads
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=EPS), nn.LayerNorm(dim, eps=EPS)
        self.to_query, self.proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.keys, self.values = (nn.Parameter(torch.empty(num_heads, width, dim)) for _ in range(2))
        self.mlp = MLP(dim, 4 * dim)
        for weight in (self.keys, self.values):
            nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, x: Float[Tensor, "b c"], patches: Float[Tensor, "b s c"]) -> Float[Tensor, "b c"]:
        h, width = self.keys.shape[:2]
        query = self.to_query(self.norm1(x)).unflatten(1, (h, width))
        asked = torch.einsum("bhd,hdc->bhc", query, self.keys) * width**-0.5
        pooled = (asked @ patches.transpose(1, 2)).softmax(dim=-1) @ patches
        x = x + self.proj(torch.einsum("bhc,hdc->bhd", pooled, self.values).flatten(1))
        return x + self.mlp(self.norm2(x)[:, None])[:, 0]  # type: ignore[no-any-return]


class TrajectoryReadout(ClassReadout):
    """Blocks of trajectory attention on the patch tokens, at a smaller width; then what `MotionReadout` sees of them.

    Args:
        num_prefix_tokens, per_frame: as in `ClassReadout`.
        dim: width of the tokens.
        grid: frames, rows and columns of learnt positions.
        blocks: of trajectory attention.
        inner: their width.
    """

    def __init__(
        self, num_prefix_tokens: int, per_frame: bool, dim: int, grid: Grid, blocks: int = 1, inner: int = 96
    ) -> None:
        super().__init__(num_prefix_tokens, per_frame)
        self.inner = inner
        self.narrow = nn.Linear(dim, inner)
        self.positions = SeparatePositions(inner, grid, 0)
        layers = (TrajectoryAttention(inner, 4, num_prefix_tokens=0) for _ in range(blocks))
        self.blocks = nn.ModuleList(Block(inner, layer) for layer in layers)
        self.norm = nn.LayerNorm(inner, eps=EPS)
        nn.init.trunc_normal_(self.positions.space, std=0.02)

    @classmethod
    def of(cls, config: ModelConfig) -> Readout:
        per_frame, blocks = SCHEMES[config.attention].prefix_per_frame, max(1, config.readout_depth)
        return cls(config.num_prefix_tokens, per_frame, config.dim, config.grid, blocks)

    def width(self, dim: int, grid: Grid) -> int:
        return dim + 3 * self.inner

    def forward(self, tokens: Float[Tensor, "b n c"], grid: Grid) -> Float[Tensor, "b _"]:
        x = self.narrow(tokens[:, self.num_prefix_tokens :]) + self.positions(grid)
        for block in self.blocks:
            x = block(x, grid[0])
        return torch.cat((super().forward(tokens, grid), MotionReadout(0)(self.norm(x), grid)), dim=1)

    def macs(self, config: ModelConfig) -> float:
        f, rows, columns = config.grid
        n, c = f * rows * columns, self.inner
        layers: list[Any] = [block.attn for block in self.blocks]
        inside = sum(float(layer.macs(f, rows * columns, 0)) for layer in layers)
        return n * config.dim * c + inside + len(layers) * 8.0 * n * c * c


READOUTS: dict[ReadoutKind, type[Readout]] = {
    "class": ClassReadout,
    "concat": ConcatReadout,
    "motion": MotionReadout,
    "paths": PathReadout,
    "cross": CrossReadout,
    "trajectory": TrajectoryReadout,
    "frames": FrameReadout,
    "mean": MeanReadout,
    "attentive": AttentiveReadout,
}
POOLED: tuple[ReadoutKind, ...] = ("class", "concat", "motion", "paths")
"""Those without parameters, for a head of classes."""


def build_readout(config: ModelConfig) -> Readout:
    """Tokens → what the head sees."""
    if config.readout not in READOUTS:
        raise ValueError(f"`readout` must be one of {', '.join(READOUTS)}; not {config.readout!r}.")
    return READOUTS[config.readout].of(config)


def _block_macs(n: int, c: int, mlp_ratio: float) -> float:
    """Of a block of joint attention over n tokens of c channels."""
    return 4 * n * c * c + 2 * n * n * c + 2 * mlp_ratio * n * c * c + 10 * n * c


def build_head(config: ModelConfig) -> nn.Module:
    """Readout → logits, for one head or several."""
    width = build_readout(config).width(config.dim, config.grid)
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
