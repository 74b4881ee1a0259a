"""Averaged weights: Lightning's exponential moving average, updated after every optimiser step, used by validation and
kept at the end. Buffers are copied, not averaged: the random features of a Performer are constants."""

from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EMAWeightAveraging


class AveragedWeights(EMAWeightAveraging):
    """Weights that follow the trained ones slowly."""

    def __init__(self, decay: float) -> None:
        super().__init__(decay=decay, use_buffers=False)

    def put_into(self, module: LightningModule) -> None:
        """What Lightning does when training ends, also for a run that was resumed after its last step."""
        if self._average_model is not None:
            self._copy_average_to_current(module)
