"""The mathematics: how softmax attention is computed (kernels) and who attends to whom (schemes)."""

# isort: off
# in the order in which names are listed: schemes, then kernels, each registered by its file
from motionformer.attention.contract import (
    KERNELS,
    SCHEMES,
    AttentionKernel,
    AttentionScheme,
    LayerRecord,
    register_kernel,
    register_scheme,
)
from motionformer.attention.exact import ExactAttention, SpaceTimeNormAttention
from motionformer.attention.orthoformer import OrthoformerAttention
from motionformer.attention.nystrom import NystromAttention
from motionformer.attention.performer import PerformerAttention
from motionformer.attention.prototypes import segment_means, select_prototypes
from motionformer.attention.record import record_attention
from motionformer.attention.temporal import TemporalAttention, TemporalAverage
from motionformer.attention.trajectory import TrajectoryAttention
from motionformer.attention.divided import DividedAttention, JointAttention, TimesformerAttention
from motionformer.attention.space import SpaceAttention
from motionformer.deprecation import deprecated_names

# isort: on

__all__ = [
    "KERNELS",
    "SCHEMES",
    "AttentionKernel",
    "AttentionScheme",
    "DividedAttention",
    "ExactAttention",
    "JointAttention",
    "LayerRecord",
    "NystromAttention",
    "OrthoformerAttention",
    "PerformerAttention",
    "SpaceAttention",
    "SpaceTimeNormAttention",
    "TemporalAttention",
    "TemporalAverage",
    "TimesformerAttention",
    "TrajectoryAttention",
    "record_attention",
    "register_kernel",
    "register_scheme",
    "segment_means",
    "select_prototypes",
]

__getattr__ = deprecated_names(__name__, {"Attend": AttentionKernel})
