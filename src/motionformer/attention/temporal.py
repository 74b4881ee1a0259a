"""What to do with a trajectory: attend along it, or average it (method.md §3, steps 2 and 3 and the `Avg_T` ablation).

A temporal pooling is given the trajectories `ỹ [b f n c]` and each query's own frame, and returns one token per query.
"""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from motionformer.attention.folded import (
    OwnFrames,
    Projections,
    Trajectories,
    memory_efficient_temporal_attention,
    own_tokens,
    pool,
    projected_weights,
    temporal_weights,
)
from motionformer.attention.projection import is_plain, without_autocast

Visible: TypeAlias = Bool[Tensor, "b f"] | None
"""True for frames with any visible key; the others are left out."""


class TemporalPooling(nn.Module, ABC):
    """`pool(tokens, own, visible) -> [b n c]`; frames that are not `visible` are left out."""

    @classmethod
    def from_config(cls, config: Any) -> "TemporalPooling":
        """Made for a `ModelConfig`."""
        return cls()

    @abstractmethod
    def forward(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b n c"]: ...

    @abstractmethod
    def weights(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b h n f"]:
        """The weights of the pooling, for recording; one head where all heads agree."""

    def macs(self, n: int, frames: int, dim: int) -> float:
        """Multiply-adds for n trajectories through `frames` frames by the paper's convention.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its multiply-adds: give it a method macs.")


class TemporalAttention(TemporalPooling):
    """Attention along each trajectory, queried from its own frame.

    The key projection has no bias: it would add the same number to every frame, which the softmax removes.

    The projections are folded (`folded.py`) while all of them are plain layers. If any is wrapped, hooked, quantised or
    parametrised, all are called, on every token of every trajectory: the same function at the paper's own cost.

    Args:
        dim: width of the tokens.
        num_heads: heads, each of `dim / num_heads` channels.
        bias: whether the projections of queries and values have a bias.
        project_values: False averages the trajectory itself, as the released models do.
        dropout: of the attention weights, in training.

    Example:
        >>> trajectories, own = torch.randn(1, 4, 24, 64), torch.arange(24) // 6
        >>> TemporalAttention(64, num_heads=4)(trajectories, own).shape
        torch.Size([1, 24, 64])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        bias: bool = True,
        project_values: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.to_query = nn.Linear(dim, dim, bias=bias)
        self.to_key = nn.Linear(dim, dim, bias=False)
        self.to_value = nn.Linear(dim, dim, bias=bias) if project_values else None

    @classmethod
    def from_config(cls, config: Any) -> TemporalPooling:
        return cls(
            config.dim,
            config.num_heads,
            bias=config.qkv_bias,
            project_values=config.project_values,
            dropout=config.attention_dropout,
        )

    def forward(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b n c"]:
        dropout = self.dropout if self.training else 0.0
        if not self._is_folded():
            weight = F.dropout(self._called_weights(tokens, own, visible), dropout)
            values = tokens if self.to_value is None else self.to_value(tokens).to(tokens.dtype)
            with without_autocast(tokens.device):
                return _zero_if_blind(pool(values, weight, None), visible)
        with without_autocast(tokens.device):
            out = memory_efficient_temporal_attention(
                tokens, own, self._projections(tokens.dtype), _hide(visible, tokens), dropout
            )
            if self.to_value is not None and self.to_value.bias is not None:
                out = out + self.to_value.bias.to(out.dtype)
        return _zero_if_blind(out, visible)

    def weights(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b h n f"]:
        if self._is_folded():
            weight = temporal_weights(tokens, own, self._projections(tokens.dtype), _hide(visible, tokens))
        else:
            weight = self._called_weights(tokens, own, visible)
        return rearrange(weight, "(b n) h f -> b h n f", b=tokens.shape[0])

    def _is_folded(self) -> bool:
        layers = (self.to_query, self.to_key, self.to_value)
        return all(is_plain(layer) for layer in layers if layer is not None)

    def _called_weights(self, tokens: Tensor, own: Tensor, visible: Tensor | None) -> Float[Tensor, "bn h f"]:
        query = self.to_query(own_tokens(tokens, own)).to(tokens.dtype)
        keys = self.to_key(tokens).to(tokens.dtype)
        with without_autocast(tokens.device):
            return projected_weights(query, keys, self.num_heads, _hide(visible, tokens))

    def macs(self, n: int, frames: int, dim: int) -> float:
        """With keys and values of every trajectory token projected, which the release does in any case."""
        return n * dim * dim + n * frames * dim * 2 * dim + 2.0 * n * frames * dim

    def _projections(self, dtype: torch.dtype) -> Projections:
        """The weights as `temporal_attention` takes them, one matrix per head."""

        def by_head(linear: nn.Linear) -> Tensor:
            heads: Tensor = linear.weight.to(dtype).unflatten(0, (self.num_heads, -1))
            return heads

        bias = self.to_query.bias
        return Projections(
            to_query=self.to_query.weight.to(dtype),
            query_bias=None if bias is None else bias.to(dtype),
            to_key=by_head(self.to_key),
            to_value=None if self.to_value is None else by_head(self.to_value),
        )


class TemporalAverage(TemporalPooling):
    """The paper's `Avg_T` ablation: the plain mean of the trajectory. No parameters.

    Example:
        >>> TrajectoryAttention(64, num_heads=4, time=TemporalAverage()).time
        TemporalAverage()
    """

    def forward(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b n c"]:
        if visible is None:
            return tokens.mean(dim=1)
        shown = visible[:, :, None, None].to(tokens.dtype)
        return (tokens * shown).sum(dim=1) / shown.sum(dim=1).clamp(min=1)

    def weights(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b h n f"]:
        shown = tokens.new_ones(tokens.shape[:2]) if visible is None else visible.to(tokens.dtype)
        weight = shown / shown.sum(dim=1, keepdim=True).clamp(min=1)
        return repeat(weight, "b f -> b 1 n f", n=tokens.shape[2])

    def macs(self, n: int, frames: int, dim: int) -> float:
        return 0.0


POOLINGS: dict[str, type[TemporalPooling]] = {"attention": TemporalAttention, "average": TemporalAverage}


def _hide(visible: Bool[Tensor, "b f"] | None, like: Tensor) -> Float[Tensor, "b f"] | None:
    """The logit bias that leaves hidden frames out; finite, so that a clip with no frame at all stays finite too."""
    if visible is None:
        return None
    return like.new_zeros(visible.shape).masked_fill(~visible, torch.finfo(like.dtype).min / 2)


def _zero_if_blind(out: Tensor, visible: Tensor | None) -> Tensor:
    return out if visible is None else out * visible.any(dim=1)[:, None, None].to(out.dtype)
