"""See what a layer attends to, without a flag in any forward pass.

`record_attention(model)` wraps the kernel and the temporal pooling of every attention layer for as long as the `with`
block lasts. Outside it, nothing is slower and nothing is kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from motionformer.attention.contract import AttentionKernel, Bias, Keys, LayerRecord, Mask, Pool, Queries, Values
from motionformer.attention.temporal import OwnFrames, TemporalPooling, Trajectories, Visible


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, LayerRecord]]:
    """Record every attention layer inside `model` for as long as the `with` block lasts (memory: all n × n maps).

    A model that computes activations again for its backward pass (`recompute`, `checkpointing`) is recorded under
    `torch.no_grad()` only: that second pass would be recorded too.

    Args:
        model: a `Motionformer`, or any module with attention layers inside.

    Returns:
        What each layer did in the last forward pass, by its name in `model`.

    Raises:
        ValueError: there is no attention layer inside.

    Example:
        >>> model = create_model("motionformer-tiny").eval()
        >>> with torch.no_grad(), record_attention(model) as records:
        ...     logits = model(torch.randn(1, 3, 8, 48, 48))
        >>> records["blocks.3.attn"].time.shape  # heads, queries, frames
        torch.Size([1, 4, 144, 4])
    """
    repeats = any(_computes_twice(module) for module in model.modules())
    records: dict[str, LayerRecord] = {}
    hooks: list[RemovableHandle] = []
    wrapped: list[tuple[nn.Module, str, nn.Module]] = []

    def wrap(module: nn.Module, attribute: str, wrapper: nn.Module) -> None:
        wrapped.append((module, attribute, getattr(module, attribute)))
        setattr(module, attribute, wrapper)

    for name, module in list(model.named_modules()):
        if not isinstance(getattr(module, "kernel", None), AttentionKernel):
            continue
        record = records[name] = LayerRecord()
        hooks.append(module.register_forward_pre_hook(record.clear))
        wrap(module, "kernel", _RecordedKernel(module.kernel, record.space_chunks, repeats))
        if isinstance(getattr(module, "prefix_kernel", None), AttentionKernel):
            wrap(module, "prefix_kernel", _RecordedKernel(module.prefix_kernel, record.prefix_chunks, repeats))
        if isinstance(getattr(module, "time", None), TemporalPooling):
            wrap(module, "time", _RecordedTime(module.time, record.time_chunks))
    if not records:
        raise ValueError(f"{type(model).__name__} has no attention layer to record.")
    try:
        yield records
    finally:
        for hook in hooks:
            hook.remove()
        for module, attribute, original in wrapped:
            setattr(module, attribute, original)


def _computes_twice(module: nn.Module) -> bool:
    return bool(getattr(module, "recompute", False) or getattr(getattr(module, "config", None), "checkpointing", False))


class _RecordedKernel(AttentionKernel):
    """The inner kernel, and before each of its answers the same with one-hot values, with the same random draws."""

    def __init__(self, inner: AttentionKernel, chunks: list[Tensor], repeats: bool) -> None:
        super().__init__()
        self.inner = inner
        self.chunks = chunks
        self.repeats = repeats
        self.train(inner.training)

    def prepare(self, q: Queries, k: Keys, v: Values, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        if self.repeats and torch.is_grad_enabled():
            raise ValueError("the model computes activations twice (recompute, checkpointing): record it in no_grad().")
        with torch.no_grad(), self._draws_come_again(q.device):
            maps = self.inner.maps(q, k, frames, bias, query_mask)
        pool = self.inner.prepare(q, k, v, frames, bias, query_mask)

        def recorded(q: Tensor) -> Tensor:
            with torch.no_grad(), self._draws_come_again(q.device):
                self.chunks.append(maps(q))
            return pool(q)

        return recorded

    @contextmanager
    def _draws_come_again(self, device: torch.device) -> Iterator[None]:
        """What is drawn inside is drawn again after it."""
        own = getattr(self.inner, "generator", None)
        state = None if own is None else own.get_state()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
        if own is not None:
            own.set_state(state)


class _RecordedTime(TemporalPooling):
    def __init__(self, inner: TemporalPooling, chunks: list[Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.chunks = chunks
        self.train(inner.training)

    def forward(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b n c"]:
        self.chunks.append(self.inner.weights(tokens, own, visible).detach())
        out: Tensor = self.inner(tokens, own, visible)
        return out

    def weights(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b h n f"]:
        return self.inner.weights(tokens, own, visible)
