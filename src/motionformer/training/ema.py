"""Averaged weights: Lightning's exponential moving average, which validation uses and the saved model holds."""

from lightning.pytorch.callbacks import EMAWeightAveraging


def average_weights(decay: float) -> EMAWeightAveraging:
    """Weights that follow the trained ones slowly, updated after every optimiser step.

    Buffers are copied, not averaged: the random features of a Performer are constants.
    """
    return EMAWeightAveraging(decay=decay, use_buffers=False)
