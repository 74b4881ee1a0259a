"""Joint attention: every token attends to every token of the clip (method.md §3)."""

from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from motionformer.attention.contract import AttentionScheme, LayerRecord, register_scheme
from motionformer.attention.projection import project_qkv


@register_scheme("joint")
class JointAttention(AttentionScheme):
    """Ordinary multi-head attention with any kernel; frames and prefix tokens make no difference to it."""

    def forward(
        self,
        x: Float[Tensor, "b n c"],
        frames: int = 1,
        *,
        context: Float[Tensor, "b m c"] | None = None,
        key_mask: Bool[Tensor, "b m"] | None = None,
        key_bias: Float[Tensor, "b m"] | None = None,
        query_mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n c"]:
        """Attend from `x` to itself or to `context`. A mask is True for real tokens."""
        q, k, v = project_qkv(self.qkv, x, context, self.num_heads)
        if query_mask is None and context is None:
            query_mask = key_mask
        pooled = self.attend(q, k, v, 1, key_mask=key_mask, key_bias=key_bias, query_mask=query_mask)
        return self.proj(rearrange(pooled, "b h n 1 d -> b n (h d)"))  # type: ignore[no-any-return]

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix."""
        c, n = self.proj.in_features, frames * patches + num_prefix_tokens
        return 4 * n * c * c + self.attend.macs(n, n, 1, self.num_heads, c // self.num_heads)

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """One softmax over all tokens."""
        return rearrange(record.space, "1 h n 1 m -> h n m")
