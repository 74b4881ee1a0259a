"""Tokens, positions, blocks, heads, and the named models made of them."""

from motionformer.models.config import AttendConfig, InputSpec, ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.variants import VARIANTS, create_model, model_config

__all__ = [
    "VARIANTS",
    "AttendConfig",
    "InputSpec",
    "ModelConfig",
    "Motionformer",
    "create_model",
    "model_config",
]
