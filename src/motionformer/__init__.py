"""Trajectory attention, Orthoformer and the Motionformer family of video transformers.

    from motionformer import Predictor, create_model, load_model
    logits = create_model("motionformer-tiny", num_classes=5)(clip)      # clip [b 3 t H W]
    model = load_model("k400_motionformer_224_16x4")
    Predictor.from_pretrained("k400_motionformer_224_16x4")("clip.mp4").top(5)

Names are imported when first used, so that `motionformer --help` does not wait for PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motionformer.attention import AttentionKernel as AttentionKernel
    from motionformer.attention import AttentionScheme as AttentionScheme
    from motionformer.attention import DividedAttention as DividedAttention
    from motionformer.attention import ExactAttention as ExactAttention
    from motionformer.attention import JointAttention as JointAttention
    from motionformer.attention import NystromAttention as NystromAttention
    from motionformer.attention import OrthoformerAttention as OrthoformerAttention
    from motionformer.attention import PerformerAttention as PerformerAttention
    from motionformer.attention import TrajectoryAttention as TrajectoryAttention
    from motionformer.attention import record_attention as record_attention
    from motionformer.attention import register_kernel as register_kernel
    from motionformer.attention import register_scheme as register_scheme
    from motionformer.attention import select_prototypes as select_prototypes
    from motionformer.errors import MotionformerError as MotionformerError
    from motionformer.finetuning import finetune as finetune
    from motionformer.inference import FeatureExtractor as FeatureExtractor
    from motionformer.inference import Predictor as Predictor
    from motionformer.inference import SyncFeatures as SyncFeatures
    from motionformer.inference import SyncPredictor as SyncPredictor
    from motionformer.inference import evaluate as evaluate
    from motionformer.models import InputSpec as InputSpec
    from motionformer.models import KernelConfig as KernelConfig
    from motionformer.models import ModelConfig as ModelConfig
    from motionformer.models import Motionformer as Motionformer
    from motionformer.models import SoundConfig as SoundConfig
    from motionformer.models import Synchformer as Synchformer
    from motionformer.models import create_model as create_model
    from motionformer.models import list_models as list_models
    from motionformer.tracing import trace as trace
    from motionformer.tracking import track as track
    from motionformer.training import train as train
    from motionformer.video import open_video as open_video
    from motionformer.weights import from_image_weights as from_image_weights
    from motionformer.weights import list_weights as list_weights
    from motionformer.weights import load_model as load_model
    from motionformer.weights import load_synchformer as load_synchformer

__version__ = "0.2.0"

_HOME = {
    "attention": (
        "AttentionKernel",
        "AttentionScheme",
        "DividedAttention",
        "ExactAttention",
        "JointAttention",
        "NystromAttention",
        "OrthoformerAttention",
        "PerformerAttention",
        "TrajectoryAttention",
        "record_attention",
        "register_kernel",
        "register_scheme",
        "select_prototypes",
    ),
    "errors": ("MotionformerError",),
    "finetuning": ("finetune",),
    "inference": ("FeatureExtractor", "Predictor", "SyncFeatures", "SyncPredictor", "evaluate"),
    "models": (
        *("InputSpec", "KernelConfig", "ModelConfig", "Motionformer", "SoundConfig", "Synchformer"),
        *("create_model", "list_models"),
    ),
    "tracing": ("trace",),
    "tracking": ("track",),
    "training": ("train",),
    "video": ("open_video",),
    "weights": ("from_image_weights", "list_weights", "load_model", "load_synchformer"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'motionformer' has no attribute {name!r}")
    return getattr(import_module(f"motionformer.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *_MODULE))
