"""The mathematics: how softmax attention is computed (`Attend`s) and who attends to whom (modules)."""

from motionformer.attention.contract import Attend
from motionformer.attention.divided import DividedAttention
from motionformer.attention.exact import ExactAttention, SpaceTimeNormAttention
from motionformer.attention.joint import JointAttention
from motionformer.attention.nystrom import NystromAttention
from motionformer.attention.orthoformer import OrthoformerAttention
from motionformer.attention.performer import PerformerAttention
from motionformer.attention.prototypes import segment_means, select_prototypes
from motionformer.attention.record import LayerRecord, attention_maps, record_attention
from motionformer.attention.temporal import TemporalAttention, TemporalAverage
from motionformer.attention.trajectory import TrajectoryAttention

__all__ = [
    "Attend",
    "DividedAttention",
    "ExactAttention",
    "JointAttention",
    "LayerRecord",
    "NystromAttention",
    "OrthoformerAttention",
    "PerformerAttention",
    "SpaceTimeNormAttention",
    "TemporalAttention",
    "TemporalAverage",
    "TrajectoryAttention",
    "attention_maps",
    "record_attention",
    "segment_means",
    "select_prototypes",
]
