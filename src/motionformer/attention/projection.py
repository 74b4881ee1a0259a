"""From tokens to queries, keys and values of each head; and the checks that every module shares."""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(layer: nn.Module, kind: type[nn.Module] = nn.Linear) -> bool:
    """Whether calling `layer` does what its `weight` and `bias` say and nothing else.

    Only then may they be used without calling it. Adapters, parametrisations and quantised layers are of another type,
    pruning masks and observers are hooks, quantised and sharded weights are tensors of another type, and some tools put
    a `forward` of their own into the layer. Hooks on *all* modules are not looked at: PyTorch's own counters set them.
    """
    return (
        type(layer) is kind
        and not hasattr(type(layer.weight), "__tensor_flatten__")  # asked of the type, which `torch.compile` sees too
        and not any(getattr(layer, hooks) for hooks in HOOKS)
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


def check_heads(dim: int, num_heads: int) -> None:
    if dim % num_heads:
        raise ValueError(f"dim {dim} does not divide into {num_heads} heads.")


def patches_per_frame(num_tokens: int, num_prefix_tokens: int, frames: int) -> int:
    """s, or an error that says which of the three numbers cannot be right."""
    patches = num_tokens - num_prefix_tokens
    if frames < 1 or patches < 0 or patches % frames:
        raise ValueError(
            f"{num_tokens} tokens, {num_prefix_tokens} of them prefix tokens, leave {patches} patch tokens, which do "
            f"not divide into {frames} frames. Tokens are ordered prefix, then frame by frame."
        )
    return patches // frames
