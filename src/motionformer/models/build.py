"""Configuration stops here: names become objects, once."""

from collections.abc import Callable, Iterable

from torch import nn

from motionformer.attention import (
    Attend,
    DividedAttention,
    ExactAttention,
    JointAttention,
    NystromAttention,
    OrthoformerAttention,
    PerformerAttention,
    SpaceTimeNormAttention,
    TemporalAttention,
    TemporalAverage,
    TrajectoryAttention,
)
from motionformer.attention.temporal import TemporalPooling
from motionformer.models.block import Block, DividedBlock
from motionformer.models.config import AttendKind, AttentionKind, ModelConfig, PositionKind, ReadoutKind, TimeKind
from motionformer.models.head import Head, HiddenLayer, MultiHead
from motionformer.models.positions import JointPositions, Positions, SeparatePositions
from motionformer.models.readout import ClassReadout, MotionReadout

Readout = ClassReadout | MotionReadout


def build_attend(config: ModelConfig) -> Attend:
    _check(config.attend.kind, ATTENDS, "attend.kind")
    return ATTENDS[config.attend.kind](config)


def build_block(config: ModelConfig, drop_path: float) -> nn.Module:
    _check(config.attention, BLOCKS, "attention")
    return BLOCKS[config.attention](config, drop_path)


def build_positions(config: ModelConfig) -> Positions:
    frames, rows, columns = config.grid
    rows, columns = config.position_grid or (rows, columns)
    _check(config.positions, POSITIONS, "positions")
    size = (config.position_frames or frames, rows, columns)
    return POSITIONS[config.positions](config.dim, size, config.num_prefix_tokens)


def build_readout(config: ModelConfig) -> Readout:
    _check(config.readout, READOUTS, "readout")
    return READOUTS[config.readout](config.num_prefix_tokens)


def build_head(config: ModelConfig) -> nn.Module:
    width = READOUTS[config.readout].width * config.dim
    hidden = HiddenLayer(width, config.dim, config.head_activation) if config.hidden_head else nn.Identity()
    features = config.dim if config.hidden_head else width
    if isinstance(config.num_classes, dict):
        return MultiHead(features, config.num_classes, hidden, config.head_dropout)
    return Head(features, config.num_classes, hidden, config.head_dropout)


def _check(key: str, known: Iterable[str], what: str) -> None:
    if key not in known:
        raise ValueError(f"{what} is one of {', '.join(known)}; not {key!r}.")


def _orthoformer(config: ModelConfig) -> Attend:
    a = config.attend
    return OrthoformerAttention(
        a.num_prototypes,
        choice=a.choice,
        shared=a.shared,
        candidates=a.candidates,
        subsample=a.subsample,
        refine=a.refine,
        ridge=a.ridge,
        dropout=config.attention_dropout,
    )


def _trajectory_block(config: ModelConfig, drop_path: float) -> nn.Module:
    _check(config.time, TIMES, "time")
    attention = TrajectoryAttention(
        config.dim,
        config.num_heads,
        num_prefix_tokens=config.num_prefix_tokens,
        bias=config.qkv_bias,
        dropout=config.attention_dropout,
        attend=build_attend(config),
        time=TIMES[config.time](config),
        chunk_size=config.chunk_size,
        recompute=config.recompute,
    )
    return Block(config.dim, attention, config.mlp_ratio, drop_path=drop_path, dropout=config.dropout)


def _temporal_attention(config: ModelConfig) -> TemporalPooling:
    return TemporalAttention(
        config.dim,
        config.num_heads,
        bias=config.qkv_bias,
        project_values=config.project_values,
        dropout=config.attention_dropout,
    )


def _joint_block(config: ModelConfig, drop_path: float) -> nn.Module:
    attention = JointAttention(
        config.dim,
        config.num_heads,
        bias=config.qkv_bias,
        dropout=config.attention_dropout,
        attend=build_attend(config),
    )
    return Block(config.dim, attention, config.mlp_ratio, drop_path=drop_path, dropout=config.dropout)


def _divided_block(config: ModelConfig, drop_path: float) -> nn.Module:
    time, space = (
        DividedAttention(
            config.dim,
            config.num_heads,
            along=along,
            num_prefix_tokens=config.num_prefix_tokens,
            bias=config.qkv_bias,
            dropout=config.attention_dropout,
            attend=build_attend(config),
        )
        for along in ("time", "space")
    )
    return DividedBlock(
        config.dim,
        time,
        space,
        config.mlp_ratio,
        drop_path=drop_path,
        drop_path_time=config.drop_path_time,
        dropout=config.dropout,
    )


ATTENDS: dict[AttendKind, Callable[[ModelConfig], Attend]] = {
    "exact": lambda config: ExactAttention(config.attention_dropout),
    "norm_st": lambda config: SpaceTimeNormAttention(config.attention_dropout),
    "orthoformer": _orthoformer,
    "nystrom": lambda config: NystromAttention(
        config.attend.num_prototypes, dropout=config.attention_dropout, constant_landmarks=True
    ),
    "performer": lambda config: PerformerAttention(config.dim // config.num_heads, config.attend.num_features),
}
BLOCKS: dict[AttentionKind, Callable[[ModelConfig, float], nn.Module]] = {
    "trajectory": _trajectory_block,
    "joint": _joint_block,
    "divided": _divided_block,
}
TIMES: dict[TimeKind, Callable[[ModelConfig], TemporalPooling]] = {
    "attention": _temporal_attention,
    "average": lambda config: TemporalAverage(),
}
POSITIONS: dict[PositionKind, type[SeparatePositions] | type[JointPositions]] = {
    "separate": SeparatePositions,
    "joint": JointPositions,
}
READOUTS: dict[ReadoutKind, type[Readout]] = {"class": ClassReadout, "motion": MotionReadout}
