"""Tokens, positions, blocks, heads, and the named models made of them."""

from typing import Any

from motionformer.errors import warn_deprecated
from motionformer.models.config import InputSpec, KernelConfig, ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.variants import VARIANTS, create_model, list_models, model_config

__all__ = [
    "VARIANTS",
    "InputSpec",
    "KernelConfig",
    "ModelConfig",
    "Motionformer",
    "create_model",
    "list_models",
    "model_config",
]


def __getattr__(name: str) -> Any:
    if name == "AttendConfig":
        warn_deprecated("`motionformer.models.AttendConfig`", "`KernelConfig`")
        return KernelConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
