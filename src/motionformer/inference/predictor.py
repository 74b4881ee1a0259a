"""START HERE: a video file becomes a prediction. The whole path, top-down.

    predictor = Predictor("k400_motionformer_224_16x4")
    prediction = predictor("clip.mp4")
    print(prediction.label, prediction.score)

File → frames (`video`) → clips (`data/clips.py`) → tokens, attention, logits (`models`) → scores (`scorer.py`) → their
mean over all views, with the names of the classes (`Prediction` in `results.py`).
"""

import logging
import multiprocessing
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Num, UInt8
from torch import Tensor

from motionformer.data import ClipReader, Failure, Views
from motionformer.data.pool import Crash, run_in_order
from motionformer.deprecation import renamed_arguments
from motionformer.errors import EvaluationError, VideoError
from motionformer.export import ExportedModel, open_model
from motionformer.export.run import Backend
from motionformer.inference.classes import LabelSource, find_names
from motionformer.inference.inputs import Frames, as_frames
from motionformer.inference.opening import check_several, is_one_video, open_input
from motionformer.inference.results import Prediction
from motionformer.inference.scorer import Precision, SampleBy, Scorer, batched, with_views
from motionformer.inference.timeline import Timeline, Window, Windows
from motionformer.logging import show_count
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.video.source import StreamClock
from motionformer.video.stream import FrameStream, stream_live, stream_video

log = logging.getLogger("motionformer")
PathLikeStr = str | PathLike[str]
_HUNG = 20
"""Time limits until a silent process is ended: large frames are read in parts, each within the limit."""


class Predictor:
    """Predicts the classes of videos: a model, the views its weights were tested with, and names of its classes.

    Args:
        model: a model, the name or path of weights as `load_model` takes it, or a file of `motionformer export`.
        device: where to compute; the model is moved there. [default: where the model is]
        precision: "32", "bf16" or "16".
        batch_size: clips per forward pass.
        num_workers: processes that decode, for `predict_many`.
        labels: names of the classes, or a file or folder with them. [default: those of the weights]
        views: clips along time. [default: the weights' own]
        crops: crops of each clip, 1 or 3. [default: the weights' own]
        sample_by: "time" counts the clip's stride at the model's rate, whatever the video's own; "frames" counts the
            video's own frames, so that none repeats in a slow one. [default: the weights' own]
        protocol: of clips, "uniform" or "released", where `model` is a name or path. [default: the weights' own]
        time_limit: seconds for opening a file, and for reading it; for a live source, of waiting for more.
        backend: what computes: "torch", "onnx" or "openvino". The last two run on the CPU; the model is exported first
            and checked against PyTorch, which takes seconds to minutes; a file of `motionformer export` is just opened.
            [default: that of an exported file, otherwise "torch"]

    Raises:
        EvaluationError: a model without classes, names that do not fit it, views that it cannot have; a backend that is
            unknown or not installed.
        ExportError: a model that the backend cannot run.

    Example:
        ```python
        predictor = Predictor("k400_motionformer_224_16x4", device="cuda", precision="bf16")
        for prediction in predictor(["a.mp4", "b.mp4"]):
            print(prediction.video, prediction.label, prediction.score)
        ```
    """

    @renamed_arguments(batch="batch_size", decoder=None)
    def __init__(
        self,
        model: Motionformer | ExportedModel | str | Path,
        *,
        device: str | torch.device | None = None,
        precision: Precision = "32",
        batch_size: int = 8,
        num_workers: int = 0,
        labels: LabelSource | None = None,
        views: int | None = None,
        crops: int | None = None,
        sample_by: SampleBy | None = None,
        protocol: SamplingProtocol | None = None,
        time_limit: float = 30.0,
        backend: Backend | None = None,
    ) -> None:
        weights = None if isinstance(model, torch.nn.Module) else model
        model = open_model(model, backend, precision=precision, protocol=protocol)
        if isinstance(model, ExportedModel) and torch.device(device or "cpu").type != "cpu":
            raise EvaluationError(f"`device` ({device}) must be cpu for exported models.")
        self.scorer = Scorer(model, device, batch_size=batch_size, precision=precision)
        self.device, self.num_workers = self.scorer.device, num_workers
        self.config, self.backend = model.eval().config, getattr(model, "backend", "torch")
        self.spec = with_views(model.config.input, views, crops, sample_by)
        self.reader = ClipReader(self.spec, time_limit=time_limit)
        self.labels, note = find_names(model.config, labels, weights)
        if note:
            log.warning("note: %s", note)

    @classmethod
    def from_pretrained(
        cls, source: str | Path, device: str | torch.device | None = None, **options: Any
    ) -> "Predictor":
        """The same as `Predictor(source, device=device, **options)`."""
        return cls(source, device=device, **options)

    @property
    def model(self) -> Motionformer:
        """The network, with its layers; an `EvaluationError` where an exported file computes, which has none."""
        if isinstance(self.scorer.model, ExportedModel):
            raise EvaluationError("an exported model has no layers to look at: give the weights that it was made from.")
        return self.scorer.model  # type: ignore[return-value]

    @overload  # a str is an iterable of str too, but the first that fits counts
    def __call__(  # type: ignore[overload-overlap]
        self, video: PathLikeStr | Frames, *, fps: float | None = None
    ) -> Prediction: ...
    @overload
    def __call__(self, video: Iterable[PathLikeStr], *, fps: float | None = None) -> Iterator[Prediction]: ...
    def __call__(self, video: Any, *, fps: float | None = None) -> Prediction | Iterator[Prediction]:
        """Predict one video, or several one after the other.

        Args:
            video: a file or a folder of frames; an address that `fsspec` knows; the bytes of a file; a row of a data
                set (a mapping with the column `video`); a torchcodec decoder; frames in memory: bytes `[t H W 3]`,
                RGB, as a tensor, an array, or a list of arrays or PIL images `[H W 3]`; or an iterable of any of
                these but frames.
            fps: of frames in memory. A file has its own. [default: the model's rate]

        Returns:
            The prediction; of several, an iterator of predictions.

        Raises:
            VideoError: a video that cannot be read; `predict_many` continues with the next one instead.
            TypeError, ValueError: something else, or frames of another type or shape.
        """
        if is_one_video(video):
            with open_input(video, self.spec, fps) as opened:
                views = self.reader.read(opened.source)
            return self._predict_views(views, opened.name)
        if fps is not None:
            raise ValueError("`fps` is of the frames of one video in memory: leave it out.")
        return (self(one) for one in check_several(video))

    def predict_many(
        self, paths: Sequence[PathLikeStr], num_workers: int | None = None
    ) -> Iterator[Prediction | Failure]:
        """Predict videos one after the other; a `Failure` where a video cannot be read.

        A file that ends the process that decodes it costs itself and no other; without such processes, it ends this.

        Args:
            paths: files and folders of frames.
            num_workers: processes that decode. [default: the predictor's]
        """
        names = [fspath(path) for path in paths]
        workers = self.num_workers if num_workers is None else num_workers
        with closing(_read_all(self.reader, names, workers)) as reading:
            for index, views in enumerate(reading):
                if isinstance(views, str):
                    yield Failure(names[index], views, index)
                else:
                    yield self._predict_views(views, names[index])

    @renamed_arguments(path="video")
    def timeline(self, video: PathLikeStr, *, hop: float | None = None, window: float | None = None) -> Timeline:
        """Predict a long video window by window: each frame is decoded once, memory does not grow with its length.

        Args:
            video: a file or a folder of frames.
            hop: seconds from window to window. [default: half a window]
            window: seconds, for weights trained on segments of whole videos, whose clips have no length of their own.

        Returns:
            The predictions of all windows, and segments above a threshold.

        Raises:
            VideoError: a video that cannot be read.
        """
        with stream_video(video, time_limit=self.reader.time_limit, square_pixels=self.reader.square_pixels) as stream:
            windows = Windows.of_model(self.spec, stream.fps, hop, window)
            picked = windows.slide(map(self._resize, stream.frames))
            per_batch = max(1, self.scorer.batch_size // self.reader.num_crops)
            found = [p for some in batched(picked, per_batch) for p in self._predict_windows(some, stream, video)]
        return Timeline(fspath(video), found[-1].end or 0.0, tuple(found))

    def stream(
        self,
        frames: Iterable[UInt8[Tensor, "H W 3"]],
        fps: float,
        *,
        every: float | None = None,
        window: float | None = None,
    ) -> Iterator[Prediction]:
        """Predict every `every` seconds of frames that arrive one by one, as soon as they are there, and the rest.

        A ring buffer holds as many frames as one clip covers.
        """
        windows = Windows.of_model(self.spec, fps, every, window)
        for picked in windows.slide(map(self._resize, frames)):
            yield from self._predict_windows([picked], FrameStream(fps, iter(()), StreamClock(fps)), "")

    def watch(
        self,
        source: str | int,
        *,
        every: float | None = None,
        window: float | None = None,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Iterator[Prediction]:
        """Predict a camera by number, a device or an address, for as long as it lasts.

        Always the newest frames: a model slower than the camera skips windows, it does not fall behind. A source that
        gives nothing for `time_limit` seconds is a `VideoError`.
        """
        reader = self.reader
        with stream_live(
            source, format=format, options=options, time_limit=reader.time_limit, square_pixels=reader.square_pixels
        ) as stream:
            windows = Windows.of_model(self.spec, stream.fps, every, window)
            # closed before the source is, whenever the caller stops: its thread reads from it
            with closing(windows.latest(map(self._resize, stream.frames))) as newest:
                for picked in newest:
                    yield from self._predict_windows([picked], stream, str(source))

    def __repr__(self) -> str:
        views = f"{show_count(self.spec.views, 'view')} × {show_count(self.spec.crops, 'crop')}"
        model, precision = self.config.source or "model", self.scorer.precision
        where = f"device={str(self.device)!r}" if self.backend == "torch" else f"backend={self.backend!r}"
        return f"Predictor({model!r}, {views}, {where}, precision={precision!r})"

    def _predict_views(self, views: Views, video: str) -> Prediction:
        scores = self.scorer(self.reader.clips(views, self.device))
        shape = (len(views.shown), self.reader.num_crops, -1)
        by_view = {task: of_all.reshape(shape) for task, of_all in scores.items()}
        return Prediction(video, self.labels, by_view, facts=views.facts)

    def _predict_windows(
        self, windows: Sequence[Window[Tensor]], stream: FrameStream, video: PathLikeStr
    ) -> Iterator[Prediction]:
        clips = (self.reader.crop(torch.stack(picked.frames).to(self.device)) for picked in windows)
        scores = self.scorer(chain.from_iterable(clips))
        crops = self.reader.num_crops
        for i, picked in enumerate(windows):
            own = {task: of_all[i * crops : (i + 1) * crops][None] for task, of_all in scores.items()}
            start, end = stream.clock.seconds(picked.start), stream.clock.seconds(picked.end)
            facts = replace(picked.facts, damaged=stream.is_damaged(picked.end))
            yield Prediction(fspath(video), self.labels, own, start, end, facts)

    def _resize(self, frame: Any) -> Num[Tensor, "h w 3"]:
        return self.reader.resize(as_frames([frame]))[0]


def _read_all(reader: ClipReader, paths: list[str], num_workers: int) -> Generator[Views | str, None, None]:
    """The views of each, or why there are none."""
    if num_workers == 0:
        for path in paths:
            yield _read(reader, path)
        return
    context = multiprocessing.get_context()  # as a torch loader starts its own: no new rule for scripts
    limit = _HUNG * reader.time_limit
    work = _ReadAlone(reader)
    with closing(run_in_order(work, paths, num_workers=num_workers, time_limit=limit, context=context)) as found:
        for views in found:
            yield views.reason if isinstance(views, Crash) else views


class _ReadAlone:
    """The work of a decoding process."""

    def __init__(self, reader: ClipReader) -> None:
        self.reader = reader

    def __call__(self, path: str) -> Views | str:
        torch.set_num_threads(1)  # one core per process; and the threads of a forked one's parent are not there
        return _read(self.reader, path)


def _read(reader: ClipReader, path: str) -> Views | str:
    try:
        with open_input(path, reader.spec) as opened:
            return reader.read(opened.source)
    except VideoError as error:
        return error.full_reason
