"""What schemes and kernels share: queries, keys and values of each head; masks; precision."""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(layer: nn.Module, kind: type[nn.Module] = nn.Linear) -> bool:
    """Whether calling `layer` applies its `weight` and `bias` and does nothing else.

    Only then may they be used without calling it. Adapters, parametrisations and quantised layers are of another type,
    pruning masks and observers are hooks, quantised and sharded weights are tensors of another type, and some tools put
    a `forward` of their own into the layer. Hooks on *all* modules are not looked at: PyTorch's own counters set them.
    """
    return (
        type(layer) is kind
        and not hasattr(type(layer.weight), "__tensor_flatten__")  # asked of the type, which `torch.compile` sees too
        and not any(getattr(layer, hooks) for hooks in _HOOKS)
        and "forward" not in layer.__dict__
    )


def project_qkv(
    qkv: nn.Module, x: Float[Tensor, "b n c"], context: Float[Tensor, "b m c"] | None, num_heads: int
) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h m d"], Float[Tensor, "b h m d"]]:
    """Queries from `x`; keys and values from `context` if there is one, else from `x` too."""
    if context is None:
        # taken apart before it is turned around: the gradient is put together in one copy, not two
        q, k, v = rearrange(qkv(x), "b n (three h d) -> b n three h d", three=3, h=num_heads).unbind(2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    sizes = (x.shape[-1], 2 * x.shape[-1])
    if isinstance(qkv, nn.Linear) and is_plain(qkv):
        bias_q, bias_kv = (None, None) if qkv.bias is None else qkv.bias.split(sizes)
        weight_q, weight_kv = qkv.weight.split(sizes)
        query, key_value = F.linear(x, weight_q, bias_q), F.linear(context, weight_kv, bias_kv)
    else:
        query, key_value = qkv(x).split(sizes, dim=-1)[0], qkv(context).split(sizes, dim=-1)[1]
    q = rearrange(query, "b n (h d) -> b h n d", h=num_heads)
    k, v = rearrange(key_value, "b m (two h d) -> two b h m d", two=2, h=num_heads)
    return q, k, v


def split_bias(
    key_mask: Bool[Tensor, "b m"] | None, key_bias: Float[Tensor, "b m"] | None, frames: int, like: Tensor
) -> tuple[Float[Tensor, "b {frames} s"] | None, Bool[Tensor, "b {frames}"] | None]:
    """A mask and a bias over keys as one additive bias per frame, and which frames show any key at all.

    The caller leaves out what was pooled from the others.
    """
    if key_mask is None and key_bias is None:
        return None, None
    bias = like.new_zeros(()) if key_bias is None else key_bias.to(like.dtype)
    if key_mask is not None:
        bias = bias.expand(key_mask.shape).masked_fill(~key_mask, -float("inf"))
    bias = rearrange(bias, "b (f s) -> b f s", f=frames)
    return bias, is_visible(bias).any(dim=-1)


def is_visible(bias: Float[Tensor, "b f s"]) -> Bool[Tensor, "b f s"]:
    """Which keys are not hidden."""
    return bias != -float("inf")


def finite_frames(bias: Float[Tensor, "b f s"]) -> Float[Tensor, "b f s"]:
    """Zero where a frame has no visible key: a softmax over nothing would be NaN."""
    return bias.masked_fill(~is_visible(bias).any(dim=-1, keepdim=True), 0.0)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Inside it products keep the type of their operands. Devices without autocast (meta) need nothing."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
