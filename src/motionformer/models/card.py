"""A few lines for people, in the folder of a saved model: what it is, what clips it takes, how to load it."""

from motionformer.models.config import ModelConfig

HEAD = """---
library_name: motionformer
pipeline_tag: video-classification
tags: [video-classification, trajectory-attention]
---
"""
MANY = 20
"""Classes that are still listed by name."""


def write_card(config: ModelConfig) -> str:
    """Markdown with the hub's header. It names no licence: that of weights is for those to say whose they are."""
    spec = config.input
    picked = f"at stride {spec.stride}" if spec.sampling == "stride" else "one of each segment of the video"
    rows = {
        "attention": f"{config.attention}, {config.attend.kind}",
        "size": f"width {config.dim}, {config.depth} layers, {config.num_heads} heads",
        "clip": f"{spec.frames} frames {picked}, {spec.height} × {spec.width} pixels, {spec.channels}",
        "sampling": f"{spec.protocol} protocol",
        "classes": _classes(config),
        "made from": f"`{config.source}`, whose licence holds for this model too"
        if config.source
        else "random weights",
    }
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    return f"""{HEAD}
# A video transformer of the Motionformer family

| | |
|---|---|
{table}

```python
from motionformer import load_model

model = load_model("this folder, or its name on the hub")
```

The model is that of [Keeping Your Eye on the Ball](https://arxiv.org/abs/2106.05392): trajectory attention in video
transformers.
"""


def _classes(config: ModelConfig) -> str:
    if isinstance(config.num_classes, dict):
        return ", ".join(f"{count} of {name}" for name, count in config.num_classes.items())
    if config.labels is None or len(config.labels) > MANY:
        return str(config.num_classes or "none: features")
    return ", ".join(label.replace("|", "\\|") for label in config.labels)
