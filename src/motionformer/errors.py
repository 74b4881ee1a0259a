"""Errors that a user can act on: what was wrong, where, and what to do."""


class MotionformerError(Exception):
    """Every error of ours that input, files or the network can cause."""


class CheckpointError(MotionformerError):
    """A weights file that cannot be read, trusted, or fitted to the model."""


class DownloadError(MotionformerError):
    """Weights that could not be fetched."""


class UnknownModelError(MotionformerError):
    """A name that is neither a variant, a released model, nor a file."""
