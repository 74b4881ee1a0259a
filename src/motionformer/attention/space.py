"""Space-only attention: every frame by itself, as an image transformer sees it (method.md §3)."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from motionformer.attention.contract import AttentionScheme, KeyMask, LayerRecord, Tokens, register_scheme


@register_scheme("space")
class SpaceAttention(AttentionScheme):
    """Tokens attend to the tokens of their own frame; every frame has class tokens of its own.

    With image weights a model of such layers is the image model, run on each frame. Its prefix is one class token for
    each frame, in order (with registers, as many more for each): as many as there are frames, or a multiple.

    Args:
        dim: width of the tokens. All arguments are those of `AttentionScheme`.

    Example:
        >>> layer = SpaceAttention(64, num_heads=4, num_prefix_tokens=4)
        >>> layer(torch.randn(1, 28, 64), frames=4).shape  # 4 frames: a class token each, and 6 patches each
        torch.Size([1, 28, 64])
    """

    prefix_per_frame = True

    def forward(self, x: Tokens, frames: int, *, key_mask: KeyMask = None) -> Tokens:
        """Attend from `x` to itself. The mask, True for real tokens, covers prefix tokens too."""
        s, p = self._patches_per_frame(x, frames), self.num_prefix_tokens
        if p % frames:
            raise ValueError(
                f"space-only attention has class tokens of each frame: {p} prefix tokens do not divide among {frames}"
                f" frames. Such a model takes clips of the number of frames that it was made for."
            )
        q, k, v = (self._by_frame(one, frames) for one in self.project(x, frames))
        mask = None if key_mask is None else self._by_frame(key_mask[:, None, :, None], frames)[:, 0, :, 0]
        pooled = self.kernel(q, k, v, 1, key_mask=mask, query_mask=mask)[:, :, :, 0]
        own = p // frames
        prefix = rearrange(pooled[:, :, :own], "(b f) h r d -> b (f r) (h d)", f=frames, r=own)
        patches = rearrange(pooled[:, :, own:], "(b f) h s d -> b (f s) (h d)", f=frames, s=s)
        return self.proj(torch.cat((prefix, patches), dim=1))  # type: ignore[no-any-return]

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix."""
        c, n = self.proj.in_features, frames * patches + num_prefix_tokens
        size = patches + num_prefix_tokens // frames
        return 4 * n * c * c + frames * self.kernel.macs(size, size, 1, self.num_heads, c // self.num_heads)

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """Zero between frames."""
        maps = record.space[:, :, :, 0]
        f, h, size = maps.shape[:3]
        own = self.num_prefix_tokens // f
        whole = maps.new_zeros(h, f, size, f, size)
        which = torch.arange(f)
        whole[:, which, :, which] = maps
        order = torch.arange(f * size).view(f, size)  # as it is here: frame by frame, class tokens with their frame
        tokens = torch.cat((order[:, :own].flatten(), order[:, own:].flatten()))
        return whole.flatten(3).flatten(1, 2)[:, tokens][:, :, tokens]

    def _by_frame(self, per_token: Tensor, frames: int) -> Tensor:
        """`[b h n d]` as `[b·f h n/f d]`: of each frame its prefix tokens, then its patches."""
        p = self.num_prefix_tokens
        parts = per_token[:, :, :p], per_token[:, :, p:]
        return torch.cat([rearrange(part, "b h (f k) d -> (b f) h k d", f=frames) for part in parts], dim=2)
