"""Run a model block by block and hand out what the wanted blocks attended to, as token-to-token weights.

Tokens are counted as the model does, prefix tokens first. A layer is a list of *steps*, each with a residual of its
own: `[h n n]`, row = who asks, column = whom it takes from (`AttentionScheme.attention_map`). Rows sum to one where the
kernel is a softmax.

The maps of one layer of the base model are 118 MB; those of a layer are let go when the next was looked at.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.attention import SCHEMES, AttentionKernel, AttentionScheme, LayerRecord, record_attention
from motionformer.errors import TraceError
from motionformer.models import Motionformer


@dataclass(frozen=True)
class LayerAttention:
    """What one layer of one clip mixed into each token."""

    steps: list[Float[Tensor, "h n n"]]
    """The weights of each step, in the order in which they happen."""

    def row(self, token: int) -> Float[Tensor, "h n"]:
        """What `token` takes from every token, all steps composed.

        The heads of two steps have nothing to do with each other. A head of the whole is a head of the last step;
        earlier steps enter with the mean of their heads.
        """
        row = self.steps[-1][:, token]
        for earlier in reversed(self.steps[:-1]):
            row = row @ earlier.mean(dim=0)
        return row


def walk(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], wanted: Collection[int]
) -> Iterator[tuple[int, LayerAttention]]:
    """The wanted layers by number, as the clip passes them; what follows the last one is not computed."""
    frames = model.tokens.grid(clip)[0]
    if not SCHEMES[model.config.attention].has_map():
        with_maps = ", ".join(name for name in SCHEMES.names() if SCHEMES[name].has_map())
        raise TraceError(
            f"attention {model.config.attention!r} states no maps: there are maps of {with_maps} attention. "
            "Grad-CAM (what='gradcam', --what gradcam) needs none."
        )
    with torch.no_grad():
        x = model.embed(clip)
    for number, block in enumerate(model.blocks[: max(wanted, default=-1) + 1]):
        # entered anew for each block: a generator that pauses inside would leave gradients off for its caller
        with torch.no_grad():
            if number in wanted:
                x, records = run_recorded(block, x, frames)
            else:
                x = block(x, frames)
        if number in wanted:
            layers = [(name, layer) for name, layer in block.named_children() if isinstance(layer, AttentionScheme)]
            yield number, LayerAttention([layer.attention_map(records[name]) for name, layer in layers])


def run_recorded(
    block: nn.Module, x: Float[Tensor, "b n c"], frames: int
) -> tuple[Float[Tensor, "b n c"], dict[str, LayerRecord]]:
    """The block's output, and what its attention did."""
    if not any(isinstance(part, AttentionKernel) for part in block.modules()):
        raise TraceError(f"the model has no attention to look at: {type(block).__name__} holds none.")
    with record_attention(block) as records:
        return block(x, frames), records
