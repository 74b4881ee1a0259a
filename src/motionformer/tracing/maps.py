"""Attention → maps: the token-to-token weights of a layer, rollout over layers, and one map per frame.

Tokens are counted as the model does, prefix tokens first. A layer is a list of *steps*, each with a residual of its
own: `[h n n]`, row = query, column = key (`AttentionScheme.attention_map`). Rows sum to one if the kernel is a softmax.
The maps of one layer of the base model are 118 MB; those of a layer are released before the next is computed.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor, nn

from motionformer.attention import SCHEMES, AttentionKernel, AttentionScheme, LayerRecord, record_attention
from motionformer.errors import TraceError
from motionformer.models import Motionformer


@dataclass(frozen=True)
class SpaceTimeMap:
    """The attention of one token: a distribution over the patches of each frame, and over frames."""

    space: Float64[Tensor, "f s"]
    """The map of each frame; it sums to one."""
    mass: Float64[Tensor, " f"]
    """The share of each frame; all together one."""
    prefix: float
    """The share of prefix tokens in the whole row."""

    @property
    def weights(self) -> Float64[Tensor, "f s"]:
        """The shares of all patches of the clip."""
        return self.mass[:, None] * self.space


def split_row(row: Float[Tensor, " n"], frames: int, num_prefix_tokens: int) -> SpaceTimeMap:
    """The map of a token whose weights over all tokens, prefix tokens first, are `row`.

    Approximations of the softmax can give slightly negative weights; they count as zero.
    """
    row = row.detach().to("cpu", torch.float64).clamp(min=0.0)  # float64: a frame's share may be far below float32's
    prefix, patches = row[:num_prefix_tokens], row[num_prefix_tokens:]
    weights = rearrange(patches, "(f s) -> f s", f=frames)
    by_frame, total = weights.sum(dim=1), patches.sum()
    if not total > 0:
        raise TraceError("nothing to show: the weights of all patches are zero.")
    uniform = torch.full_like(weights, 1 / weights.shape[1])  # of a frame that gets nothing, nothing is known
    space = torch.where(by_frame[:, None] > 0, weights / by_frame[:, None], uniform)
    return SpaceTimeMap(space, by_frame / total, float(prefix.sum() / row.sum()))


@dataclass(frozen=True)
class _LayerAttention:
    """What one layer of one clip mixed into each token."""

    steps: list[Float[Tensor, "h n n"]]
    """The weights of each step, in order."""

    def row(self, token: int) -> Float[Tensor, "h n"]:
        """The weights of `token` over all tokens, all steps composed.

        The heads of two steps are unrelated. A head of the whole is a head of the last step; earlier steps enter with
        the mean of their heads.
        """
        row = self.steps[-1][:, token]
        for earlier in reversed(self.steps[:-1]):
            row = row @ earlier.mean(dim=0)
        return row


def walk_layers(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], wanted: Collection[int]
) -> Iterator[tuple[int, _LayerAttention]]:
    """The wanted layers by number, as the clip passes them; what follows the last one is not computed."""
    frames = model.tokens.grid(clip)[0]
    if not SCHEMES[model.config.attention].has_map():
        with_maps = ", ".join(name for name in SCHEMES.names() if SCHEMES[name].has_map())
        raise TraceError(
            f"attention {model.config.attention!r} defines no maps; {with_maps} attention does. "
            "Grad-CAM (what='gradcam', --what gradcam) needs none."
        )
    with torch.no_grad():
        x = model.embed(clip)
    for number, block in enumerate(model.blocks[: max(wanted, default=-1) + 1]):
        # entered anew for each block: a generator that pauses inside would leave gradients off for its caller
        with torch.no_grad():
            if number in wanted:
                x, records = _run_recorded(block, x, frames)
            else:
                x = block(x, frames)
        if number in wanted:
            layers = [(name, layer) for name, layer in block.named_children() if isinstance(layer, AttentionScheme)]
            yield number, _LayerAttention([layer.attention_map(records[name]) for name, layer in layers])


def _run_recorded(
    block: nn.Module, x: Float[Tensor, "b n c"], frames: int
) -> tuple[Float[Tensor, "b n c"], dict[str, LayerRecord]]:
    if not any(isinstance(part, AttentionKernel) for part in block.modules()):
        raise TraceError(f"the model has no attention to show: {type(block).__name__} holds none.")
    with record_attention(block) as records:
        return block(x, frames), records


def rollout_rows(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], token: int, upto: Collection[int]
) -> list[Float[Tensor, " n"]]:
    """Attention rollout (Abnar & Zuidema, 2020): the share of each input token in `token` after layer i, for every i
    in `upto`, ascending.

    Every step of every layer is `(1 + A) / 2`, the mean of its heads beside the residual, and steps are multiplied.
    Correct for every scheme because a layer states its steps: trajectory attention has one (time × space, summed over
    frames), divided attention two with a residual each.
    """
    reached: Tensor | None = None
    rows = []
    for number, layer in walk_layers(model, clip, range(max(upto) + 1)):
        for weights in layer.steps:
            step = _with_residual(weights.mean(dim=0))
            reached = step if reached is None else step @ reached
        if number in upto:
            assert reached is not None
            rows.append(reached[token].clone())
    return rows


def _with_residual(weights: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Half attention, half the token itself. Rows of approximate attention are first normalised to one, without their
    negative weights."""
    positive = weights.clamp(min=0.0)
    positive = positive / positive.sum(dim=1, keepdim=True)
    return (positive + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)) / 2
