"""Peak memory of a training step of the base model: as computed here, with recomputation, and by the literal equations.

The memory column of the paper's table 3 is `motionformer reproduce t3m`.
"""

import json
from dataclasses import replace

from motionformer.models import ModelConfig
from motionformer.models.costs import MODEL_STEP, step_peak, training_step_peak

LITERAL = """
from tests.literal.trajectory import literal_model
model = literal_model(model)
"""


def training_step_bytes(config: ModelConfig, how: str = "ours") -> int:
    """Bytes beyond weights and gradients, one clip, no dropped paths; `how` is ours, recompute or literal."""
    if how == "literal":
        return step_peak(MODEL_STEP + LITERAL, json.dumps(replace(config, drop_path=0.0).to_dict()))
    return training_step_peak(replace(config, recompute=how == "recompute"))
