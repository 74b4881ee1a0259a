"""What a folder of weights needs beside them so that Hugging Face `transformers` loads it: plain JSON, and a file.

Written without `transformers`; the classes themselves are in `motionformer.hf`. The file that the hub calls remote code
holds one import: whoever trusts it runs the installed package, and nothing that came with the weights.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motionformer.models.config import ModelConfig

MODEL_TYPE = "motionformer"
PROCESSOR = "video_preprocessor_config.json"
REMOTE_CODE = "modeling_motionformer"
CLASSES = {
    "AutoConfig": "MotionformerConfig",
    "AutoModelForVideoClassification": "MotionformerForVideoClassification",
    "AutoVideoProcessor": "MotionformerVideoProcessor",
}
"""The classes of `motionformer.hf` by those of transformers that find them."""
_CODE = f'''"""For transformers with trust_remote_code=True: the classes of the installed package, motionformer[hf]."""

from motionformer.hf import {", ".join(sorted(CLASSES.values()))}  # noqa: F401
'''


def auto_map(*autos: str) -> dict[str, str]:
    """Where transformers finds these classes in a folder."""
    return {auto: f"{REMOTE_CODE}.{CLASSES[auto]}" for auto in autos}


def describe_for_hub(config: ModelConfig) -> dict[str, Any]:
    """The keys of `config.json` that transformers reads; the model itself is under `architecture`.

    Raises:
        ValueError: several heads or none, which no class of transformers for video classification has.
    """
    if not isinstance(config.num_classes, int) or config.num_classes < 1:
        raise ValueError(
            f"transformers' video classification has one head with classes; this model has {config.num_classes!r}: "
            "save it without hf=True, or give it classes with reset_classifier."
        )
    names = config.labels or [f"LABEL_{i}" for i in range(config.num_classes)]
    return {
        "model_type": MODEL_TYPE,
        "architectures": [CLASSES["AutoModelForVideoClassification"]],
        "auto_map": auto_map("AutoConfig", "AutoModelForVideoClassification"),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "problem_type": "multi_label_classification" if config.scoring == "sigmoid" else "single_label_classification",
    }


def describe_processor(config: ModelConfig) -> dict[str, Any]:
    """The processor that reads the clips of this model."""
    kind = CLASSES["AutoVideoProcessor"]
    return {"video_processor_type": kind, "auto_map": auto_map("AutoVideoProcessor"), "input": asdict(config.input)}


def write_hub_files(folder: Path, config: ModelConfig) -> None:
    """The import that stands for remote code, and the processor."""
    (folder / f"{REMOTE_CODE}.py").write_text(_CODE, encoding="utf-8")
    (folder / PROCESSOR).write_text(json.dumps(describe_processor(config), indent=2) + "\n", encoding="utf-8")


def remove_hub_files(folder: Path) -> None:
    """Those of another model that was there."""
    for name in (f"{REMOTE_CODE}.py", PROCESSOR):
        (folder / name).unlink(missing_ok=True)
