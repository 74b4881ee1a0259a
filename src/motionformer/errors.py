"""Errors that a user can act on: what was wrong, where, and what to do."""

from os import PathLike, fspath
from pathlib import Path


class MotionformerError(Exception):
    """Every error of ours that input, files or the network can cause."""

    is_reported = False
    """Whether rank zero of a distributed job prints it: then the other ranks need not."""


class CheckpointError(MotionformerError):
    """A weights file that cannot be read, trusted, or fitted to the model."""


class DownloadError(MotionformerError):
    """Weights that could not be fetched."""


class UnknownModelError(MotionformerError):
    """A name that is neither a variant, a released model, nor a file."""


class ClipSizeError(MotionformerError, ValueError):
    """Frames or pixels that do not divide into a model's patches."""


class TraceError(MotionformerError):
    """A question about attention that the model or the clip cannot answer."""


class ExportError(MotionformerError):
    """A model that could not be exported, or whose exported file does not compute the same."""


class AnnotationError(MotionformerError):
    """A list of videos and labels that cannot be read as it stands: which file, which line, why."""

    def __init__(self, reason: str, file: "str | PathLike[str] | None" = None, line: int | None = None) -> None:
        super().__init__(reason, file, line)  # all arguments, so that it survives the way out of a worker process
        self.reason = reason
        self.file = file
        self.line = line

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}: " if self.line is None else f"{self.file}:{self.line}: "
        return where + self.reason


class MissingVideosError(AnnotationError):
    """A list or folder that is not there, or videos of it."""


class RecipeError(MotionformerError):
    """A recipe that cannot be read or makes no sense: which file, which key."""

    def __init__(self, reason: str, file: "str | PathLike[str] | None" = None) -> None:
        super().__init__(reason if file is None else f"{fspath(file)}: {reason}")


class OutputError(MotionformerError):
    """An output that cannot be written, is in use, or holds the results of another job."""


class LaunchError(MotionformerError):
    """Processes that a launcher started in a way that no job can use, or one of them that failed."""


class StoppedError(MotionformerError):
    """A job that SIGTERM or SIGUSR1 stopped: what is kept, and how it resumes. Commands exit with code 75."""


class EvaluationError(MotionformerError):
    """A model, data and results that do not belong together, or a way of scoring that makes no sense for them."""


class FailedVideosError(MotionformerError):
    """More videos failed than the run was told to accept."""


class PoolError(MotionformerError):
    """A process that ended before it took up any item, so that no item is to blame."""


class MaskError(MotionformerError):
    """Masks that cannot be read, do not fit their frames, or are not where a data set keeps them."""


class VideoError(MotionformerError):
    """A video, a folder of frames, or a line of a list of videos that cannot be read.

    `reason` is the decoder's own reason. Only `reason` is required, so that the error keeps its type when a loader's
    worker process hands it to the main one as plain text.
    """

    def __init__(
        self,
        reason: str,
        path: str | PathLike[str] | None = None,
        *,
        frame: int | None = None,
        line: int | None = None,
    ) -> None:
        self.reason = reason
        self.path = None if path is None else Path(fspath(path))
        self.frame = frame
        self.line = line
        where = [] if path is None else [fspath(path)]  # of an address, a path would swallow a slash
        where += [] if line is None else [f"line {line}"]
        where += [] if frame is None else [f"frame {frame}"]
        super().__init__(f"{', '.join(where)}: {reason}" if where else reason)

    @property
    def full_reason(self) -> str:
        """The reason, and the frame where it is one frame's: for a table that names the file itself."""
        return self.reason if self.frame is None else f"frame {self.frame} {self.reason}"

    def __reduce__(self) -> tuple[object, ...]:
        state = {"frame": self.frame, "line": self.line, "args": self.args}
        return type(self), (self.reason, self.path), state


class TrainingError(MotionformerError):
    """A training run that cannot start, resume or be saved: which folder, why, what to do."""


class NonFiniteLossError(TrainingError):
    """The loss became infinite or not a number; the message names the file that lists the batch's videos."""


class PageError(MotionformerError):
    """A request that the browser page rejects, and why: a limit, a file that is no video, a malformed query."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status
        """Of the HTTP response."""
