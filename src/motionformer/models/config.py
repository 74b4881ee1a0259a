"""What a model is: a plain, complete description that goes to JSON and back. Building happens in `build.py`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from motionformer.attention import KERNELS, SCHEMES
from motionformer.errors import ClipSizeError
from motionformer.video.spec import InputSpec as InputSpec
from motionformer.video.spec import SamplingProtocol as SamplingProtocol

TimeKind = Literal["attention", "average"]
PositionKind = Literal["separate", "joint"]
ActivationKind = Literal["tanh", "gelu", "relu"]
ReadoutKind = Literal["class", "motion"]
ScoringKind = Literal["softmax", "sigmoid"]


@dataclass(frozen=True)
class AttendConfig:
    """The attention kernel: how softmax attention is computed. Settings that a kernel does not have are ignored by it.

    `kind` is a registered name (`register_kernel`); `options` are those that a kernel of one's own declares.
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
    def from_dict(cls, values: Mapping[str, Any]) -> "AttendConfig":
        """Made of the options named; an unknown key or choice is an error that names it."""
        made: AttendConfig = _from_dict(cls, values)
        return made


@dataclass(frozen=True)
class ModelConfig:
    """A Motionformer or one of its joint and divided twins.

    `attention` is the scheme, a registered name (`register_scheme`); `attention_options` are those that a scheme of
    one's own declares. `attend` is the attention kernel.
    `num_classes` is a number, 0 for features only, or names and numbers of several heads: `{"verb": 97, "noun": 300}`.
    `readout` says what the head sees: the class token, or with it the moments of motion (`motion`, `readout.py`).
    `scoring` says what the logits mean: one class of all (`softmax`), or each class by itself (`sigmoid`, for videos
    of any number of classes). The model gives logits in either case.
    `labels` are the names of the classes of a single head, as many as there are.
    `drop_path` leaves whole branches out in training, at a rate that rises over the blocks to this. `drop_path_time`
    says whether the time branch of a divided block is one of them; in the released models it is not.
    `position_grid` and `position_frames` are the sizes of the stored tables where they differ from the input's
    (tables are interpolated to the clip).
    """

    dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_ratio: float = 4.0
    patch: int = 16
    tubelet: int = 2
    num_prefix_tokens: int = 1
    qkv_bias: bool = True

    attention: str = field(default="trajectory", metadata={"registry": SCHEMES})
    attention_options: dict[str, Any] = field(default_factory=dict)
    attend: AttendConfig = field(default_factory=AttendConfig)
    time: TimeKind = "attention"
    project_values: bool = True

    positions: PositionKind = "separate"
    position_grid: tuple[int, int] | None = None
    position_frames: int | None = None

    num_classes: int | dict[str, int] = 400
    readout: ReadoutKind = "class"
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
        """Refuse labels for other classes, and a clip that is not made of whole patches: the rest would be cut off."""
        counts = self.num_classes.values() if isinstance(self.num_classes, dict) else (self.num_classes,)
        if any(count < 0 for count in counts):
            raise ValueError(f"num_classes is {self.num_classes}; it cannot be below 0.")
        for name, unit in (("tubelet", self.tubelet), ("patch", self.patch)):
            if unit < 1:
                raise ClipSizeError(f"{name} is {unit}; it must be at least 1.")
        if self.labels is not None and len(self.labels) != self.num_classes:
            raise ValueError(f"{len(self.labels)} labels do not name {self.num_classes} classes.")
        for what, length, unit in (
            ("frames", self.input.frames, self.tubelet),
            ("height", self.input.height, self.patch),
            ("width", self.input.width, self.patch),
        ):
            if length < unit or length % unit:
                near = sorted({max(1, length // unit) * unit, max(1, length // unit + 1) * unit})
                raise ClipSizeError(
                    f"{what} {length} is no multiple of {unit}; {' or '.join(map(str, near))} would be."
                )

    @property
    def grid(self) -> tuple[int, int, int]:
        """Token frames, rows and columns of the input the model was made for."""
        return (
            self.input.frames // self.tubelet,
            self.input.height // self.patch,
            self.input.width // self.patch,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values. Empty options are left out, so that what was marked with a configuration of 0.1 stays valid."""
        values = asdict(self)
        for group, key in ((values, "attention_options"), (values["attend"], "options")):
            if not group[key]:
                del group[key]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """The inverse of `to_dict`; an unknown key or choice is an error that names it."""
        made: ModelConfig = _from_dict(cls, values)
        return made


def _from_dict(cls: type[Any], values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(cls)
    registries = {f.name: f.metadata["registry"] for f in fields(cls) if "registry" in f.metadata}
    unknown = sorted(set(values) - {f.name for f in fields(cls)})
    if unknown:
        raise ValueError(f"{cls.__name__} has no {', '.join(map(repr, unknown))}; it has {', '.join(hints)}.")
    made = {}
    for name, value in values.items():
        if is_dataclass(hints[name]) and isinstance(value, Mapping):
            value = _from_dict(hints[name], value)
        elif isinstance(value, list):
            value = tuple(value)
        elif get_origin(hints[name]) is Literal and value not in get_args(hints[name]):
            raise ValueError(f"{name} is one of {', '.join(get_args(hints[name]))}; not {value!r}.")
        elif name in registries:
            registries[name][value]  # an unknown name is an error that lists the known ones
        made[name] = value
    return cls(**made)
