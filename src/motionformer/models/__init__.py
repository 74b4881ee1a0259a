"""Tokens, positions, blocks, heads, and the named models made of them."""

from motionformer.deprecation import deprecated_names
from motionformer.models.adapter import AttentionAdapter
from motionformer.models.config import AdapterConfig, InputSpec, KernelConfig, ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.synchformer import SoundConfig, Synchformer
from motionformer.models.variants import VARIANTS, create_model, list_models, model_config

__all__ = [
    "VARIANTS",
    "AdapterConfig",
    "AttentionAdapter",
    "InputSpec",
    "KernelConfig",
    "ModelConfig",
    "Motionformer",
    "SoundConfig",
    "Synchformer",
    "create_model",
    "list_models",
    "model_config",
]

__getattr__ = deprecated_names(__name__, {"AttendConfig": KernelConfig})
