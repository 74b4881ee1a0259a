"""Pre-norm transformer blocks (method.md §2, §3). The attention is given; the block knows only residuals."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from motionformer.models.config import MLPActivation

EPS = 1e-6
_ROUNDING = 1e-6
"""A ratio that was computed from two widths gives back the width."""


class Block(nn.Module):
    """`x + attention(norm1 x)`, then `x + mlp(norm2 x)`, then the adapter, where there is one."""

    def __init__(
        self,
        dim: int,
        attention: nn.Module,
        mlp_ratio: float = 4.0,
        *,
        drop_path: float = 0.0,
        dropout: float = 0.0,
        norm_eps: float = EPS,
        activation: MLPActivation = "gelu",
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = MLP(dim, int(dim * mlp_ratio + _ROUNDING), dropout, activation)
        self.drop_path = StochasticDepth(drop_path)
        self.dropout = nn.Dropout(dropout)
        self.adapter: nn.Module | None = None

    def forward(
        self, x: Float[Tensor, "b n c"], frames: int, key_mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        """The mask, True for real tokens, covers prefix tokens too. An attention without masks works without one."""
        masks = {} if key_mask is None else {"key_mask": key_mask}
        x = x + self.drop_path(self.dropout(self.attn(self.norm1(x), frames, **masks)))
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x if self.adapter is None else self.adapter(x, frames, **masks)


class DividedBlock(nn.Module):
    """Time first, then space, each with its own residual, then the MLP.

    Without `drop_path_time` the time branch is never dropped, as in the released models.
    """

    def __init__(
        self,
        dim: int,
        time: nn.Module,
        space: nn.Module,
        mlp_ratio: float = 4.0,
        *,
        drop_path: float = 0.0,
        drop_path_time: bool = True,
        dropout: float = 0.0,
        norm_eps: float = EPS,
        activation: MLPActivation = "gelu",
    ) -> None:
        super().__init__()
        self.norm_time = nn.LayerNorm(dim, eps=norm_eps)
        self.time_attn = time
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = space
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = MLP(dim, int(dim * mlp_ratio + _ROUNDING), dropout, activation)
        self.drop_path = StochasticDepth(drop_path)
        self.drop_path_time = drop_path_time
        self.dropout = nn.Dropout(dropout)
        self.adapter: nn.Module | None = None

    def forward(
        self, x: Float[Tensor, "b n c"], frames: int, key_mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        """The mask, True for real tokens, covers prefix tokens too. An attention without masks works without one."""
        masks = {} if key_mask is None else {"key_mask": key_mask}
        along_time = self.dropout(self.time_attn(self.norm_time(x), frames, **masks))
        x = x + (self.drop_path(along_time) if self.drop_path_time else along_time)
        x = x + self.drop_path(self.dropout(self.attn(self.norm1(x), frames, **masks)))
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x if self.adapter is None else self.adapter(x, frames, **masks)


class MLP(nn.Module):
    """Linear, GELU (exact, or by the hyperbolic tangent), linear."""

    def __init__(self, dim: int, hidden: int, dropout: float = 0.0, activation: MLPActivation = "gelu") -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU(approximate="tanh" if activation == "gelu_tanh" else "none")
        self.fc2 = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        return self.dropout(self.fc2(self.dropout(self.act(self.fc1(x)))))  # type: ignore[no-any-return]


class StochasticDepth(nn.Module):
    """In training, leaves a branch out for some samples and scales the others up."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        if self.rate == 0.0 or not self.training:
            return x
        keep = torch.rand(x.shape[0], 1, 1, device=x.device) >= self.rate
        return x * (keep.to(x.dtype) / (1 - self.rate))

    def extra_repr(self) -> str:
        return f"rate={self.rate:.3f}"
