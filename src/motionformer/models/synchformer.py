"""Synchformer (Iashin et al., 2024): by how much is a video's sound early or late?

Segments of the video and of its spectrogram are encoded apart, the video by a divided Motionformer with a vector per
token frame, the sound by an image transformer on its spectrogram with a vector per step of time. One transformer then
reads the vectors of all segments of both and classifies the offset.
"""

from dataclasses import dataclass
from fractions import Fraction

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.attention import JointAttention
from motionformer.errors import ClipSizeError
from motionformer.models.block import Block
from motionformer.models.head import FrameReadout
from motionformer.models.motionformer import Motionformer

_AUDIO_EPS = 1e-12
_COMPARISON_EPS = 1e-5


@dataclass(frozen=True)
class SoundConfig:
    """What a `Synchformer` is built from beside its visual half.

    Args:
        dim: width of the tokens.
        audio_depth: blocks of the audio half.
        audio_heads: their attention heads.
        depth: blocks of the comparison.
        num_heads: their attention heads.
        num_segments: segments that are compared, of both halves.
        num_offsets: classes, from `-max_offset` to `max_offset` seconds.
        max_offset: the largest offset, in seconds.
        mel_bins: height of a spectrogram.
        mel_frames: its width: the length of a segment.
        mel_patch: side of a token, in the spectrogram.
        mel_stride: distance of tokens: they overlap.

    Example:
        >>> SoundConfig().mel_grid
        (12, 6)
    """

    dim: int = 768
    audio_depth: int = 12
    audio_heads: int = 12
    depth: int = 3
    num_heads: int = 8
    num_segments: int = 14
    num_offsets: int = 21
    max_offset: float = 2.0
    mel_bins: int = 128
    mel_frames: int = 66
    mel_patch: int = 16
    mel_stride: int = 10

    @property
    def mel_grid(self) -> tuple[int, int]:
        """Tokens along frequency and time."""
        high, wide = ((size - self.mel_patch) // self.mel_stride + 1 for size in (self.mel_bins, self.mel_frames))
        return high, wide


class Synchformer(nn.Module):
    """Segments of a video and of its sound in, logits of the offset between them out. `load_synchformer` loads one.

    Args:
        visual: the visual half, a model with `readout="frames"`.
        config: everything else.

    Raises:
        ValueError: the halves are not of one width, or the visual one has another readout.

    Example:
        >>> visual = create_model("divided-tiny", num_classes=0, readout="frames", dim=64, num_heads=1)
        >>> model = Synchformer(visual, SoundConfig(64, 1, 1, depth=1, num_segments=2))
        >>> model(torch.randn(1, 2, 8, 3, 48, 48), torch.randn(1, 2, 1, 128, 66)).shape
        torch.Size([1, 21])
    """

    def __init__(self, visual: Motionformer, config: SoundConfig) -> None:
        super().__init__()
        if visual.config.readout != "frames" or visual.config.dim != config.dim:
            raise ValueError(
                f"the visual half must have a readout of 'frames' and a width of {config.dim}; not "
                f"{visual.config.readout!r} and {visual.config.dim}."
            )
        self.config = config
        self.visual = visual
        self.audio = AudioEncoder(config)
        self.comparison = Comparison(config, visual.config.grid[0])

    def forward(self, segments: Float[Tensor, "b s t 3 H W"], mel: Float[Tensor, "b s 1 y x"]) -> Float[Tensor, "b k"]:
        """Logits of the offsets."""
        return self.compare(self.visual.sync_features(segments), self.audio_features(mel))

    def audio_features(self, mel: Float[Tensor, "b s 1 y x"]) -> Float[Tensor, "b s f c"]:
        """Features of the segments of a sound: a vector per step of time.

        Args:
            mel: normalised spectrograms (`motionformer.video.sound.spectrograms`).

        Returns:
            For segments of 0.64 s, 6 vectors.
        """
        return self.audio(mel.flatten(0, 1)).unflatten(0, mel.shape[:2])  # type: ignore[no-any-return]

    def compare(self, visual: Float[Tensor, "b s f c"], audio: Float[Tensor, "b r a c"]) -> Float[Tensor, "b k"]:
        """Logits of the offsets, of the features of both.

        Raises:
            ClipSizeError: another number of segments than the model has positions for.
        """
        counts = {visual.shape[1], audio.shape[1]}
        if counts != {self.config.num_segments}:
            raise ClipSizeError(
                f"a comparison takes {self.config.num_segments} segments of both; not {visual.shape[1]} of the video "
                f"and {audio.shape[1]} of the sound."
            )
        return self.comparison(visual.flatten(1, 2), audio.flatten(1, 2))  # type: ignore[no-any-return]

    @property
    def offsets(self) -> tuple[float, ...]:
        """Seconds of each class. With a positive one the sound is early, as in Synchformer's own examples."""
        steps, largest = self.config.num_offsets - 1, Fraction(self.config.max_offset)
        return tuple(float(largest * Fraction(2 * i - steps, steps)) for i in range(steps + 1))


class AudioEncoder(nn.Module):
    """Spectrograms `[b 1 y x] -> [b f c]`: overlapping tokens, a transformer, and a readout per step of time."""

    def __init__(self, config: SoundConfig) -> None:
        super().__init__()
        dim, self.grid = config.dim, config.mel_grid
        self.tokens = nn.Conv2d(1, dim, config.mel_patch, config.mel_stride)
        self.prefix = nn.Parameter(torch.zeros(1, 2, dim))  # class and distillation token
        self.positions = nn.Parameter(torch.zeros(1, 2 + self.grid[0] * self.grid[1], dim))
        self.blocks = nn.ModuleList(
            Block(dim, JointAttention(dim, config.audio_heads), norm_eps=_AUDIO_EPS) for _ in range(config.audio_depth)
        )
        self.norm = nn.LayerNorm(dim, eps=_AUDIO_EPS)
        self.readout = FrameReadout(0, dim, config.audio_heads)

    def forward(self, mel: Float[Tensor, "b 1 y x"]) -> Float[Tensor, "b f c"]:
        patches = rearrange(self.tokens(mel), "b c y x -> b (y x) c")
        x = torch.cat((self.prefix.expand(len(mel), -1, -1), patches), dim=1) + self.positions
        for block in self.blocks:
            x = block(x, 1)
        high, wide = self.grid
        by_time = rearrange(self.norm(x)[:, 2:], "b (y x) c -> b (x y) c", y=high)
        return self.readout(by_time, (wide, high, 1))  # type: ignore[no-any-return]


class Comparison(nn.Module):
    """The vectors of all segments of both halves → logits of the offset."""

    def __init__(self, config: SoundConfig, visual_frames: int) -> None:
        super().__init__()
        dim = config.dim
        length = 2 + config.num_segments * (visual_frames + config.mel_grid[1])
        self.visual_proj, self.audio_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.visual_norm = nn.LayerNorm(dim, eps=_COMPARISON_EPS)
        self.audio_norm = nn.LayerNorm(dim, eps=_COMPARISON_EPS)
        self.offset_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.audio_token = nn.Parameter(torch.zeros(1, 1, dim))  # between the two
        self.positions = nn.Parameter(torch.zeros(1, length, dim))
        self.blocks = nn.ModuleList(
            Block(dim, JointAttention(dim, config.num_heads), norm_eps=_COMPARISON_EPS) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(dim, eps=_COMPARISON_EPS)
        self.classifier = nn.Linear(dim, config.num_offsets)

    def forward(self, visual: Float[Tensor, "b v c"], audio: Float[Tensor, "b a c"]) -> Float[Tensor, "b k"]:
        offset, between = (token.expand(len(visual), -1, -1) for token in (self.offset_token, self.audio_token))
        seen, heard = self.visual_norm(self.visual_proj(visual)), self.audio_norm(self.audio_proj(audio))
        x = torch.cat((offset, seen, between, heard), dim=1) + self.positions
        for block in self.blocks:
            x = block(x, 1)
        return self.classifier(self.norm(x[:, 0]))  # type: ignore[no-any-return]
