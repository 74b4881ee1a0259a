"""Your videos become a trained model: options → plan → split → recipe → `motionformer.training`.

    from motionformer.finetuning import finetune
    result = finetune("videos/", output="runs/mine", epochs=10)

Start reading in `run.py`. Lightning is imported when training begins.
"""

from motionformer.finetuning.options import FinetuneOptions
from motionformer.finetuning.run import FinetunePlan, finetune, plan_finetune

__all__ = ["FinetuneOptions", "FinetunePlan", "finetune", "plan_finetune"]
