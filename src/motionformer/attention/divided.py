"""Joint attention, to every token of the clip, and divided attention, along time or over space (method.md §3).

The paper's comparisons. A divided block holds two divided layers, one for each direction. TimeSformer's own block
differs in what the class token sees.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from motionformer.attention.contract import (
    AttentionScheme,
    Context,
    KeyBias,
    KeyMask,
    LayerRecord,
    Mask,
    Tokens,
    register_scheme,
)
from motionformer.attention.exact import ExactAttention
from motionformer.attention.projection import split_bias

_GROUPS = {"time": ("(b s) h f", "(b s) f"), "space": ("(b f) h s", "(b f) s")}


@register_scheme("joint")
class JointAttention(AttentionScheme):
    """Every token attends to every token: ordinary multi-head attention; frames and prefix make no difference to it.

    Args:
        dim: width of the tokens. All arguments are those of `AttentionScheme`.

    Example:
        >>> JointAttention(64, num_heads=4)(torch.randn(1, 25, 64)).shape
        torch.Size([1, 25, 64])
    """

    def forward(
        self,
        x: Tokens,
        frames: int = 1,
        *,
        context: Context = None,
        key_mask: KeyMask = None,
        key_bias: KeyBias = None,
        query_mask: Mask = None,
    ) -> Tokens:
        """Attend from `x` to itself or to `context`. A mask is True for real tokens."""
        q, k, v = self.project(x, frames, context)
        if query_mask is None and context is None:
            query_mask = key_mask
        pooled = self.kernel(q, k, v, 1, key_mask=key_mask, key_bias=key_bias, query_mask=query_mask)
        return self.proj(rearrange(pooled, "b h n 1 d -> b n (h d)"))  # type: ignore[no-any-return]

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix."""
        c, n = self.proj.in_features, frames * patches + num_prefix_tokens
        return 4 * n * c * c + self.kernel.macs(n, n, 1, self.num_heads, c // self.num_heads)

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """One softmax over all tokens."""
        return rearrange(record.space, "1 h n 1 m -> h n m")


@register_scheme("divided")
class DividedAttention(AttentionScheme):
    """Patch tokens attend to the patch tokens of their group and to the prefix tokens, prefix tokens to everything.

    Args:
        dim: width of the tokens.
        num_heads: heads, each of `dim / num_heads` channels.
        along: `time` groups the same position in all frames, `space` all positions of the same frame.
        options: further arguments of `AttentionScheme`.

    Raises:
        ValueError: `along` is neither.

    Example:
        >>> layer = DividedAttention(64, num_heads=4, along="time")
        >>> layer(torch.randn(1, 25, 64), frames=4).shape  # a class token and 4 frames of 6 patches
        torch.Size([1, 25, 64])
    """

    def __init__(self, dim: int, num_heads: int = 8, *, along: Literal["time", "space"], **options: Any) -> None:
        super().__init__(dim, num_heads, **options)
        if along not in _GROUPS:
            raise ValueError(f"`along` must be 'time' or 'space', not {along!r}.")
        self.along = along
        self.token_groups, self.mask_groups = _GROUPS[along]
        self.num_shared = self.num_prefix_tokens
        """Prefix tokens in front of every group."""
        self.prefix_kernel = ExactAttention(self.dropout)  # few queries: exact is linear already

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> tuple[AttentionScheme, AttentionScheme]:
        """Along time, then over space."""
        time, space = (super(DividedAttention, cls).from_config(config, along=along, **options) for along in _GROUPS)
        assert isinstance(time, AttentionScheme)
        assert isinstance(space, AttentionScheme)
        return time, space

    def forward(
        self,
        x: Tokens,
        frames: int,
        *,
        context: Context = None,
        key_mask: KeyMask = None,
        key_bias: KeyBias = None,
        query_mask: Mask = None,
    ) -> Tokens:
        """Attend from `x` to itself or to a `context` of the same grid. Masks cover prefix tokens, True is real."""
        p = self.num_prefix_tokens
        s = self._patches_per_frame(x, frames)
        self._check_context(x, context)
        q, k, v = self.project(x, frames, context)
        if query_mask is None and context is None:
            query_mask = key_mask

        pieces = []
        if p > 0:
            pooled = self.prefix_kernel(q[:, :, :p], k, v, 1, key_mask=key_mask, key_bias=key_bias)
            pieces.append(rearrange(pooled, "b h p 1 d -> b p (h d)"))
        groups = s if self.along == "time" else frames
        pooled = self.kernel(
            self._group(q[:, :, p:], frames),
            self._with_prefix(k, frames, groups),
            self._with_prefix(v, frames, groups),
            1,
            key_mask=self._mask_with_prefix(key_mask, frames, groups),
            key_bias=self._mask_with_prefix(key_bias, frames, groups),
            query_mask=None if query_mask is None else self._group_mask(query_mask[:, p:], frames),
        )
        out = rearrange(pooled.squeeze(3), f"{self.token_groups} d -> b (f s) (h d)", f=frames, s=s)
        return self.proj(torch.cat((*pieces, out), dim=1))  # type: ignore[no-any-return]

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix."""
        c, n = self.proj.in_features, frames * patches + num_prefix_tokens
        groups, size = (patches, frames) if self.along == "time" else (frames, patches)
        inside = self.kernel.macs(size, size + num_prefix_tokens, 1, self.num_heads, c // self.num_heads)
        return 4 * n * c * c + 2 * num_prefix_tokens * n * c + groups * inside

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """The weights of each group go where both tokens lie in it: at one position, or in one frame."""
        below = self._spread(record.space[:, :, :, 0], self.num_prefix_tokens)
        return below if record.prefix is None else torch.cat((record.prefix[0, :, :, 0], below), dim=1)

    def _spread(self, groups: Float[Tensor, "g h n m"], p: int) -> Float[Tensor, "h patches all"]:
        """The rows of patch tokens over `p` prefix tokens and all patches, from the weights inside each group."""
        which = torch.arange(groups.shape[0])
        if self.along == "time":
            s, h, f = groups.shape[:3]
            patches = groups.new_zeros(h, f, s, f, s)
            patches[:, :, which, :, which] = groups[..., p:]
            to_prefix = rearrange(groups[..., :p], "s h f p -> h (f s) p")
        else:
            f, h, s = groups.shape[:3]
            patches = groups.new_zeros(h, f, s, f, s)
            patches[:, which, :, which] = groups[..., p:]
            to_prefix = rearrange(groups[..., :p], "f h s p -> h (f s) p")
        return torch.cat((to_prefix, rearrange(patches, "h f s f2 s2 -> h (f s) (f2 s2)")), dim=2)

    def _check_context(self, x: Tensor, context: Tensor | None) -> None:
        if context is not None and context.shape != x.shape:
            raise ValueError(f"divided attention needs a context laid out like x: {context.shape} against {x.shape}.")

    def _group(self, tokens: Tensor, frames: int) -> Tensor:
        return rearrange(tokens, f"b h (f s) d -> {self.token_groups} d", f=frames)

    def _group_mask(self, mask: Tensor, frames: int) -> Tensor:
        return rearrange(mask, f"b (f s) -> {self.mask_groups}", f=frames)

    def _with_prefix(self, tokens: Tensor, frames: int, groups: int) -> Tensor:
        """The tokens of each of a clip's groups, and a copy of the prefix tokens in front of each."""
        p = self.num_shared
        prefix = repeat(tokens[:, :, :p], "b h p d -> (b g) h p d", g=groups)
        return torch.cat((prefix, self._group(tokens[:, :, p:], frames)), dim=2)

    def _mask_with_prefix(self, mask: Tensor | None, frames: int, groups: int) -> Tensor | None:
        if mask is None:
            return None
        p = self.num_shared
        prefix = repeat(mask[:, :p], "b p -> (b g) p", g=groups)
        return torch.cat((prefix, self._group_mask(mask[:, p:], frames)), dim=1)


@register_scheme("timesformer")
class TimesformerAttention(DividedAttention):
    """Divided attention as in TimeSformer: prefix tokens rest along time, and see one frame at a time over space.

    Along time, patch tokens attend to the patch tokens at their position only. Over space, every frame has its own copy
    of the prefix tokens, which attends inside the frame; their mean is the output. (In `DividedAttention` prefix
    tokens attend to the whole clip in one softmax, and patch tokens to them, along both.)

    Args:
        dim: width of the tokens. All arguments are those of `DividedAttention`.

    Example:
        >>> layer = TimesformerAttention(64, num_heads=4, along="space")
        >>> layer(torch.randn(1, 25, 64), frames=4).shape  # a class token and 4 frames of 6 patches
        torch.Size([1, 25, 64])
    """

    def __init__(self, dim: int, num_heads: int = 8, *, along: Literal["time", "space"], **options: Any) -> None:
        super().__init__(dim, num_heads, along=along, **options)
        del self.prefix_kernel
        if along == "time":
            self.num_shared = 0

    def forward(
        self,
        x: Tokens,
        frames: int,
        *,
        context: Context = None,
        key_mask: KeyMask = None,
        key_bias: KeyBias = None,
        query_mask: Mask = None,
    ) -> Tokens:
        """Attend from `x` to itself or to a `context` of the same grid. Masks cover prefix tokens, True is real."""
        p, shared = self.num_prefix_tokens, self.num_shared
        s = self._patches_per_frame(x, frames)
        self._check_context(x, context)
        groups, unused = s if self.along == "time" else frames, p - shared
        context = None if context is None else context[:, unused:]
        q, k, v = self.project(x[:, unused:], frames, context, num_prefix_tokens=shared)
        if query_mask is None and context is None:
            query_mask = key_mask
        masks = [None if mask is None else mask[:, unused:] for mask in (key_mask, key_bias, query_mask)]
        grouped = [self._mask_with_prefix(mask, frames, groups) for mask in masks]
        pooled = self.kernel(
            *(self._with_prefix(part, frames, groups) for part in (q, k, v)),
            1,
            key_mask=grouped[0],
            key_bias=grouped[1],
            query_mask=grouped[2],
        ).squeeze(3)
        out = rearrange(pooled[:, :, shared:], f"{self.token_groups} d -> b (f s) (h d)", f=frames, s=s)
        if shared:
            copies = rearrange(pooled[:, :, :shared], "(b f) h p d -> b f p (h d)", f=frames)
            in_patches = [None if mask is None else mask[:, shared:] for mask in masks]
            seen = split_bias(in_patches[0], in_patches[1], frames, q)[1]
            if seen is not None:  # copies in padded frames do not count
                copies = copies * rearrange(seen * (frames / seen.sum(1, keepdim=True).clamp(min=1)), "b f -> b f 1 1")
            return self.proj(torch.cat((copies.to(out.dtype).mean(dim=1), out), dim=1))  # type: ignore[no-any-return]
        return F.pad(self.proj(out), (0, 0, p, 0))  # prefix tokens get nothing, not even a bias

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix."""
        c = self.proj.in_features
        shared = 0 if self.along == "time" else num_prefix_tokens
        groups, size = (patches, frames) if self.along == "time" else (frames, patches)
        inside = self.kernel.macs(size + shared, size + shared, 1, self.num_heads, c // self.num_heads)
        return 4 * (frames * patches + shared) * c * c + groups * inside

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """As in divided attention. Prefix tokens: the mean of their copies; along time, each stays itself."""
        shared, p = self.num_shared, self.num_prefix_tokens
        groups = record.space[:, :, :, 0]
        patches = self._spread(groups[:, :, shared:], shared)
        if not shared:
            keep = torch.eye(p).to(patches).expand(patches.shape[0], -1, -1)
            above = F.pad(keep, (0, patches.shape[-1]))
            return torch.cat((above, F.pad(patches, (p, 0))), dim=1)
        to_prefix = groups[:, :, :shared, :shared].mean(dim=0)
        to_patches = rearrange(groups[:, :, :shared, shared:] / len(groups), "f h p s -> h p (f s)")
        return torch.cat((torch.cat((to_prefix, to_patches), dim=2), patches), dim=1)
