"""What a model is: a plain, complete description that goes to JSON and back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

from motionformer.attention import KERNELS, SCHEMES
from motionformer.deprecation import rename_deprecated, warn_deprecated
from motionformer.errors import ClipSizeError
from motionformer.models.validation import check_value
from motionformer.video.spec import InputSpec as InputSpec
from motionformer.video.spec import SamplingProtocol as SamplingProtocol

PositionKind = Literal["separate", "joint", "sine", "time", "none"]
RotaryKind = Literal["none", "space", "space_time"]
ActivationKind = Literal["tanh", "gelu", "relu"]
ReadoutKind = Literal["class", "concat", "motion", "paths", "cross", "trajectory", "frames", "mean", "attentive"]
ScoringKind = Literal["softmax", "sigmoid"]
MLPActivation = Literal["gelu", "gelu_tanh"]
RENAMED = {"attend": "kernel"}
"""Keys of a configuration of 0.1, which are still read, and their names now."""


@dataclass(frozen=True)
class KernelConfig:
    """The attention kernel: how softmax attention is computed. A kernel ignores the settings that it does not have.

    Args:
        kind: a registered name (`register_kernel`).
        num_prototypes: prototypes of Orthoformer, landmarks of Nyström attention.
        choice: how Orthoformer selects prototypes.
        shared: one set of prototypes for all key frames, or one per frame.
        candidates: select prototypes among the queries, or among queries and keys.
        subsample: consider only this many times `num_prototypes` random candidates.
        refine: move each prototype to the mean of its nearest queries.
        ridge: λ of the correction for overlapping prototypes.
        num_features: random features of the Performer.
        options: options that a kernel of your own declares.

    Example:
        >>> model = create_model("motionformer-tiny", kernel=KernelConfig("orthoformer", num_prototypes=16))
        >>> model.blocks[0].attn.kernel.num_prototypes
        16
    """

    kind: str = field(default="exact", metadata={"registry": KERNELS})
    num_prototypes: int = 128
    choice: Literal["orthogonal", "random", "segments"] = "orthogonal"
    shared: bool = True
    candidates: Literal["queries", "queries+keys"] = "queries"
    subsample: int | None = None
    refine: bool = False
    ridge: float = 0.0
    num_features: int = 256
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "KernelConfig":
        """From plain values; an unknown key or choice is an error that names it."""
        made: KernelConfig = _from_dict(cls, values)
        return made


@dataclass(frozen=True)
class AdapterConfig:
    """Attention adapters behind every k-th block, which a frozen model is trained with (`AttentionAdapter`).

    Args:
        attention: the attention scheme inside, a registered name; empty for no adapters.
        every: behind every how many blocks; the last block always has one.
        width: channels inside [default: a quarter of the model's].
        num_heads: heads inside [default: of 32 channels each].

    Example:
        >>> model = create_model("joint-tiny", adapter=AdapterConfig("trajectory", every=2))
        >>> sum(block.adapter is not None for block in model.blocks)
        2
    """

    attention: str = ""
    every: int = 3
    width: int = 0
    num_heads: int = 0


@dataclass(frozen=True)
class ModelConfig:
    """Everything a `Motionformer` is built from.

    Args:
        dim: width of the tokens.
        depth: number of blocks.
        num_heads: attention heads.
        mlp_ratio: width of the MLP, in units of `dim`.
        activation: of the MLP: GELU, or its approximation by the hyperbolic tangent.
        norm_eps: ε of the layer norms.
        patch: height and width of a token, in pixels.
        tubelet: frames of a token.
        num_prefix_tokens: class token and registers.
        qkv_bias: whether the projections to queries, keys and values have a bias.
        attention: the attention scheme, a registered name (`register_scheme`).
        attention_options: options that a scheme of your own declares.
        kernel: the attention kernel.
        time: trajectory attention: attention along a trajectory, or its average.
        project_values: trajectory attention: whether values are projected along time.
        adapter: attention adapters between the blocks.
        positions: separate spatial and temporal position embeddings, a joint one, one of sines that is not learnt, a
            temporal one alone, or none.
        rotary: rotary positions of queries and keys (`attention.rotary`): of rows and columns, or of frames too.
        position_grid: rows and columns of the stored position embedding, where they differ from the input's
            (embeddings are interpolated to the clip).
        position_frames: likewise, frames.
        num_classes: a number, 0 for features only, or several heads by name: `{"verb": 97, "noun": 300}`.
        readout: what the head sees: the class token (`ClassReadout`), vectors of all frames side by side
            (`ConcatReadout`), with the class token the moments of motion (`MotionReadout`), with both the displacements
            along attention paths (`PathReadout`); a vector per token frame, for features without classes
            (`FrameReadout`); the mean of the patch tokens, with the last norm behind it (`MeanReadout`); or what a
            learnt query attends to (`AttentiveReadout`, and `CrossReadout`, its cheap sister for frozen tokens); or
            motion after trajectory attention on the tokens (`TrajectoryReadout`).
        readout_depth: blocks in front of the learnt query of an attentive readout; blocks of `cross` and `trajectory`.
        readout_positions: whether a `cross` readout has learnt positions of frames.
        hidden_head: whether there is a hidden layer before the classifier.
        head_activation: its activation.
        scoring: what the logits mean: one class of all (`softmax`), or each class by itself (`sigmoid`).
        drop_path: stochastic depth; the rate rises over the blocks to this.
        drop_path_time: whether it applies to the time branch of a divided block; in the released models it does not.
        dropout: of tokens.
        attention_dropout: of attention weights.
        head_dropout: before the classifier.
        chunk_size: trajectory attention: queries processed at once [default: by device].
        recompute: trajectory attention: compute intermediates again in the backward pass.
        checkpointing: activation checkpointing of whole blocks.
        input: the clips it was made for.
        labels: names of the classes of a single head.
        source: the weights it was initialised from.

    Raises:
        ValueError: negative `num_classes`, or `labels` of another number.
        ClipSizeError: a clip that does not divide into tokens.

    Example:
        >>> ModelConfig(num_classes=5, input=InputSpec(frames=8)).grid
        (4, 14, 14)
    """

    dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_ratio: float = 4.0
    activation: MLPActivation = "gelu"
    norm_eps: float = 1e-6
    patch: int = 16
    tubelet: int = 2
    num_prefix_tokens: int = 1
    qkv_bias: bool = True

    attention: str = field(default="trajectory", metadata={"registry": SCHEMES})
    attention_options: dict[str, Any] = field(default_factory=dict)
    kernel: KernelConfig = field(default_factory=KernelConfig)
    time: Literal["attention", "average"] = "attention"
    project_values: bool = True
    adapter: AdapterConfig = field(default_factory=AdapterConfig)

    positions: PositionKind = "separate"
    rotary: RotaryKind = "none"
    position_grid: tuple[int, int] | None = None
    position_frames: int | None = None

    num_classes: int | dict[str, int] = 400
    readout: ReadoutKind = "class"
    readout_depth: int = 0
    readout_positions: bool = False
    hidden_head: bool = True
    head_activation: ActivationKind = "tanh"
    scoring: ScoringKind = "softmax"

    drop_path: float = 0.2
    drop_path_time: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    head_dropout: float = 0.0

    chunk_size: int | None = None
    recompute: bool = False
    checkpointing: bool = False

    input: InputSpec = field(default_factory=InputSpec)
    labels: tuple[str, ...] | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        counts = self.num_classes.values() if isinstance(self.num_classes, dict) else (self.num_classes,)
        if any(count < 0 for count in counts):
            raise ValueError(f"`num_classes` ({self.num_classes}) must not be negative.")
        for name, unit in (("tubelet", self.tubelet), ("patch", self.patch)):
            if unit < 1:
                raise ClipSizeError(f"`{name}` ({unit}) must be at least 1.")
        if self.readout == "frames" and (self.num_classes != 0 or self.hidden_head):
            raise ValueError(
                "a readout of `frames` gives a vector per token frame and no classes: `num_classes` must be 0 and "
                "`hidden_head` False. For a classifier, change `readout` to 'class'."
            )
        if self.labels is not None and len(self.labels) != self.num_classes:
            raise ValueError(f"{len(self.labels)} labels for {self.num_classes} classes: there must be one per class.")
        for what, length, unit in (
            ("frames", self.input.frames, self.tubelet),
            ("height", self.input.height, self.patch),
            ("width", self.input.width, self.patch),
        ):
            if length < unit or length % unit:
                near = sorted({max(1, length // unit) * unit, max(1, length // unit + 1) * unit})
                raise ClipSizeError(
                    f"`{what}` ({length}) must be a multiple of {unit}, such as {' or '.join(map(str, near))}."
                )

    @property
    def grid(self) -> tuple[int, int, int]:
        """Token frames, rows and columns of the input the model was made for."""
        return (
            self.input.frames // self.tubelet,
            self.input.height // self.patch,
            self.input.width // self.patch,
        )

    def resized_positions(self) -> dict[str, Any]:
        """Changes for clips of another size: learnt position embeddings become of that size, interpolated once.

        Sines keep the size that the weights know, and are interpolated.
        """
        if self.positions != "sine":
            return {"position_grid": None, "position_frames": None}
        frames, rows, columns = self.grid
        return {
            "position_grid": self.position_grid or (rows, columns),
            "position_frames": self.position_frames or frames,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values; empty options and adapters that there are not are left out."""
        values = asdict(self)
        for group, key in ((values, "attention_options"), (values["kernel"], "options")):
            if not group[key]:
                del group[key]
        if not self.adapter.attention:
            del values["adapter"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], file: Path | None = None) -> "ModelConfig":
        """The inverse of `to_dict`; an unknown key or choice is an error that names it, a deprecated key a warning that
        names the `file` they are from."""
        made: ModelConfig = _from_dict(cls, rename_deprecated(values, RENAMED, file=file))
        return made

    @property
    def attend(self) -> KernelConfig:
        """Deprecated name of `kernel`."""
        warn_deprecated("`ModelConfig.attend`", "`ModelConfig.kernel`")
        return self.kernel


def _from_dict(cls: type[Any], values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(cls)
    registries = {f.name: f.metadata["registry"] for f in fields(cls) if "registry" in f.metadata}
    unknown = sorted(set(values) - {f.name for f in fields(cls)})
    if unknown:
        raise ValueError(f"{cls.__name__} has no {', '.join(map(repr, unknown))}; it has {', '.join(hints)}.")
    made = {}
    for name, value in values.items():
        if is_dataclass(hints[name]) and isinstance(value, Mapping):
            value = _from_dict(cast(type[Any], hints[name]), value)
        elif isinstance(value, list):
            value = tuple(value)
        check_value(cls, name, value, hints[name])
        if name in registries:
            registries[name][value]  # an unknown name is an error that lists the known ones
        made[name] = value
    return cls(**made)
