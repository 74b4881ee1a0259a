"""Run a model block by block and hand out what the wanted blocks attended to, one at a time.

The maps of one layer of the base model are 118 MB; those of a layer are let go when the next was looked at.
"""

from collections.abc import Collection, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.attention import Attend, LayerRecord, record_attention
from motionformer.errors import TraceError
from motionformer.models import Motionformer
from motionformer.trace.layers import SCHEMES, LayerAttention


def walk(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], wanted: Collection[int]
) -> Iterator[tuple[int, LayerAttention]]:
    """The wanted layers by number, as the clip passes them; what follows the last one is not computed."""
    frames = model.tokens.grid(clip)[0]
    scheme = SCHEMES.get(model.config.attention)
    if scheme is None:
        raise TraceError(
            f"attention {model.config.attention!r} states no maps: there are maps of {', '.join(SCHEMES)} attention. "
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
            yield number, scheme(records, model.config.num_prefix_tokens)


def run_recorded(
    block: nn.Module, x: Float[Tensor, "b n c"], frames: int
) -> tuple[Float[Tensor, "b n c"], dict[str, LayerRecord]]:
    """The block's output, and what its attention did."""
    if not any(isinstance(part, Attend) for part in block.modules()):
        raise TraceError(f"the model has no attention to look at: {type(block).__name__} holds none.")
    with record_attention(block) as records:
        return block(x, frames), records
