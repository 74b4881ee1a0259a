"""What someone needs who runs the file without this package: how to make a clip, and what the numbers mean."""

from dataclasses import asdict
from typing import Any

from motionformer.export.trace import output_names
from motionformer.models import ModelConfig


def describe(config: ModelConfig) -> dict[str, Any]:
    """Plain values that go to JSON and back; every key is also a key of the ONNX metadata."""
    spec = asdict(config.input)
    return {
        "inputs": {"clip": ["batch", 3, config.input.frames, config.input.height, config.input.width]},
        "outputs": list(output_names(config)),
        "classes": config.num_classes,
        "scoring": config.scoring,
        "labels": None if config.labels is None else list(config.labels),
        "clip": {key: list(value) if isinstance(value, tuple) else value for key, value in spec.items()},
        "attention": config.attention,
        "kernel": config.kernel.kind,
        "source": config.source,
    }
