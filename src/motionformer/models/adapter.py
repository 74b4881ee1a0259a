"""Attention adapters: a small attention over the clip, inserted behind every k-th block of a frozen model (blocks.md).

An adapter narrows the tokens, lets them attend along trajectories (or jointly, or along time), widens them again and
adds the result through a gate of one number per channel. Gates start at zero: the model begins as it was, bit by bit,
while the gate's gradient is that of an adapter at work.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from motionformer.attention import SCHEMES, AttentionScheme
from motionformer.models.config import KernelConfig, ModelConfig

_EPS = 1e-6
_HEAD_WIDTH = 32
_GAIN = 10.0
"""Times the gate: in the few hundred steps that there are, an optimiser moves a gate by hundredths."""


class AttentionAdapter(nn.Module):
    """`x + gate · up(attention(down(norm x) + time))`, with a sine encoding of the frame.

    Args:
        config: the model's; `config.adapter` describes the adapter.

    Raises:
        ValueError: the width of the adapter does not divide into heads.

    Example:
        >>> model = create_model("joint-tiny", adapter=AdapterConfig("trajectory", every=2))
        >>> model.blocks[1].adapter.attn.num_heads
        1
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, num_heads = adapter_width(config)
        inner = replace(
            config,
            dim=width,
            num_heads=num_heads,
            attention=config.adapter.attention,
            attention_options={},
            kernel=KernelConfig(),
            time="attention",
            project_values=True,
            attention_dropout=0.0,
        )
        layers: Any = SCHEMES.build(inner.attention, inner, {})
        self.norm = nn.LayerNorm(config.dim, eps=_EPS)
        self.down = nn.Linear(config.dim, width)
        # of a scheme of two layers that along time: over space the block attends by itself
        self.attn: AttentionScheme = layers[0] if isinstance(layers, tuple) else layers
        self.up = nn.Linear(width, config.dim)
        self.gate = nn.Parameter(torch.zeros(config.dim))

    def forward(
        self, x: Float[Tensor, "b n c"], frames: int, key_mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        """The tokens of a clip, prefix tokens first. The mask is True for real tokens."""
        masks = {} if key_mask is None else {"key_mask": key_mask}
        narrow = self.down(self.norm(x))
        narrow = narrow + self._time(narrow, frames)
        return x + _GAIN * self.gate * self.up(self.attn(narrow, frames, **masks))  # type: ignore[no-any-return]

    def initialise(self) -> None:
        """Weights that keep the size of what passes, so that a gate that opens lets something through."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=layer.in_features**-0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.gate)

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix."""
        tokens, c = frames * patches + num_prefix_tokens, self.down.in_features
        inner = self.attn.macs(frames, patches, num_prefix_tokens)
        return 5.0 * tokens * c + 2.0 * tokens * c * self.down.out_features + inner

    def _time(self, x: Float[Tensor, "b n d"], frames: int) -> Float[Tensor, "n d"]:
        """Sines and cosines of the number of each token's frame; zero for prefix tokens."""
        p, d = self.attn.num_prefix_tokens, x.shape[2]
        rates = torch.exp(torch.arange(0, d, 2, device=x.device) * (-math.log(10000.0) / d))
        angles = torch.arange(frames, device=x.device)[:, None] * rates
        waves = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)[:, :d]
        patches = waves.repeat_interleave((x.shape[1] - p) // frames, dim=0)
        return torch.cat((patches.new_zeros(p, d), patches)).to(x.dtype)


def adapter_width(config: ModelConfig) -> tuple[int, int]:
    """Width and heads of a model's adapters: as given, or a quarter of the model's width in heads of 32 channels."""
    width = config.adapter.width or max(_HEAD_WIDTH, config.dim // 4 // _HEAD_WIDTH * _HEAD_WIDTH)
    num_heads = config.adapter.num_heads or max(1, width // _HEAD_WIDTH)
    return width, num_heads


def adapted_blocks(config: ModelConfig) -> range:
    """Numbers of the blocks with an adapter behind them: every k-th, the last one among them."""
    every = config.adapter.every
    if not config.adapter.attention:
        return range(0)
    if not 1 <= every <= config.depth:
        raise ValueError(f"`adapter.every` ({every}) must be from 1 to the number of blocks ({config.depth}).")
    return range((config.depth - 1) % every, config.depth, every)


def describe_adapters(config: ModelConfig) -> str:
    """Such as `trajectory attention, 96 wide, behind blocks 2, 5, 8, 11`."""
    numbers = ", ".join(map(str, adapted_blocks(config)))
    return f"{config.adapter.attention} attention, {adapter_width(config)[0]} wide, behind blocks {numbers}"
