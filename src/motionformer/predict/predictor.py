"""START HERE: a video file becomes a prediction. The whole path, top-down.

    predictor = Predictor.from_pretrained("k400_motionformer_224_16x4")
    prediction = predictor("clip.mp4")
    print(prediction.label, prediction.score)

File → frames (`video`) → views (`data/clips.py`) → tokens, attention, logits (`models`) → softmax (sigmoid, if the
model was trained on videos of several classes), averaged over the views (`evaluation.aggregate`) → one `Prediction`.
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
from jaxtyping import UInt8
from torch import Tensor

from motionformer.data import ClipReader, Failure, Views
from motionformer.data.pool import Crash, run_in_order
from motionformer.errors import VideoError
from motionformer.evaluation.computing import Precision, find_device
from motionformer.evaluation.views import SampleBy, with_views
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.predict.frames import Frames, as_frames, check_fps, check_path, check_paths, is_frames
from motionformer.predict.live import latest_windows
from motionformer.predict.names import LabelSource, find_names, labels_beside
from motionformer.predict.prediction import Prediction
from motionformer.predict.scoring import Scorer, batched
from motionformer.predict.timeline import Timeline
from motionformer.predict.windows import Picked, model_windows, slide
from motionformer.video.decode import check_decoder
from motionformer.video.source import StreamClock
from motionformer.video.stream import FrameStream, stream_live, stream_video
from motionformer.weights import load_model

log = logging.getLogger("motionformer")
PathLikeStr = str | PathLike[str]
HUNG = 20
"""Time limits until a silent process is ended: large frames are read in parts, each within the limit."""


class Predictor:
    """A model, the views its weights were tested with, and the names of its classes."""

    def __init__(
        self,
        model: Motionformer,
        *,
        labels: LabelSource | None = None,
        views: int | None = None,
        crops: int | None = None,
        sample_by: SampleBy | None = None,
        device: str | torch.device | None = None,
        batch: int = 8,
        precision: Precision = "32",
        decoder: str = "pyav",
        time_limit: float = 30.0,
    ) -> None:
        """
        Args:
            labels: names of the classes, or a file or folder that holds them (`names.read_labels`); those in the
                weights by default.
            views, crops: clips along time and crops of each; the weights' own by default.
            sample_by: "time" counts the clip's stride at the model's rate, whatever the video's own; "frames" counts
                the video's own frames, so that none repeats in a slow one. The weights' own by default.
            device: where to compute; where the model is by default. The model is moved there.
            batch: clips in one forward pass.
            time_limit: seconds for opening a file, and for reading it; for a live source, of waiting for more.
        """
        self.device = find_device(model, device)
        self.model = model.to(self.device).eval()
        self.spec = with_views(model.config.input, views, crops, sample_by)
        self.labels, note = find_names(model.config, labels)
        check_decoder(decoder)
        self.time_limit = time_limit
        self.reader = ClipReader(self.spec, time_limit=time_limit)
        self.score = Scorer(self.model, self.device, batch, precision)
        if note:
            log.warning("note: %s", note)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        device: str | torch.device | None = None,
        *,
        protocol: SamplingProtocol | None = None,
        **options: Any,
    ) -> "Predictor":
        """With the weights that `load_model` finds under this name or path; `protocol` as there."""
        model = load_model(source, protocol=protocol)
        if options.get("labels") is None:
            options["labels"] = labels_beside(source, model.config)
        return cls(model, device=device, **options)

    @overload  # a str is an iterable of str too, but the first that fits counts
    def __call__(  # type: ignore[overload-overlap]
        self, video: PathLikeStr | Frames, *, fps: float | None = None
    ) -> Prediction: ...
    @overload
    def __call__(self, video: Iterable[PathLikeStr], *, fps: float | None = None) -> Iterator[Prediction]: ...
    def __call__(self, video: Any, *, fps: float | None = None) -> Prediction | Iterator[Prediction]:
        """Predict one video, or several paths one after the other.

        Args:
            video: a file or a folder of frames; frames in memory: bytes `[t H W 3]`, RGB, as a tensor, an array, or a
                list of arrays or PIL images `[H W 3]`; or an iterable of paths.
            fps: of frames in memory; the model's rate by default. A file has its own.

        Returns:
            The prediction; of several paths, an iterator of predictions.

        Raises:
            VideoError: for what cannot be read; `predict_many` goes on instead.
            TypeError, ValueError: for what is neither a path nor frames.
        """
        if is_frames(video):
            return self.predict_frames(video, fps)
        if fps is not None:
            raise ValueError("`fps` is of frames in memory; a file has its own rate: leave it out.")
        if isinstance(video, (str, PathLike)):
            return self.predict_views(self.reader.read(Path(video)), fspath(video))
        return (self(check_path(path)) for path in check_paths(video))

    def predict_frames(self, frames: Any, fps: float | None = None) -> Prediction:
        """Of frames that are there already (as `__call__` takes them), at the model's rate by default."""
        return self.predict_views(self.reader.take(as_frames(frames), check_fps(fps, self.spec)))

    def predict_many(self, paths: Sequence[PathLikeStr], num_workers: int = 0) -> Iterator[Prediction | Failure]:
        """One after the other, decoded by `num_workers` processes; a `Failure` where a video cannot be read.

        A file that ends the process that decodes it costs itself and no other; without such processes, it ends this.
        """
        names = [fspath(path) for path in paths]
        with closing(_read_all(self.reader, names, num_workers)) as reading:
            for index, views in enumerate(reading):
                if isinstance(views, str):
                    yield Failure(names[index], views, index)
                else:
                    yield self.predict_views(views, names[index])

    def predict_views(self, views: Views, video: str = "") -> Prediction:
        """Every clip in every crop through the model; its scores are kept, and averaged on demand."""
        scores = self.score(self.reader.clips(views, self.device))
        shape = (len(views.shown), self.reader.num_crops)
        by_view = {task: all_.reshape(*shape, -1) for task, all_ in scores.items()}
        return Prediction(video, self.labels, by_view, facts=views.facts)

    def timeline(self, path: PathLikeStr, *, hop: float | None = None, window: float | None = None) -> Timeline:
        """A long video, window by window: each frame is decoded once, and memory does not grow with its length.

        `hop` is seconds from window to window (half a window by default). `window` is for weights trained on
        segments of whole videos, whose clips have no length of their own.
        """
        with stream_video(path, time_limit=self.time_limit, square_pixels=self.reader.square_pixels) as stream:
            windows = model_windows(self.spec, stream.fps, hop, window)
            picked = slide(map(self._shrink, stream.frames), windows)
            at_once = max(1, self.score.batch // self.reader.num_crops)
            found = [p for some in batched(picked, at_once) for p in self._predict_windows(some, stream, path)]
        return Timeline(fspath(path), found[-1].end or 0.0, tuple(found))

    def stream(
        self,
        frames: Iterable[UInt8[Tensor, "H W 3"]],
        fps: float,
        *,
        every: float | None = None,
        window: float | None = None,
    ) -> Iterator[Prediction]:
        """A prediction every `every` seconds of a stream, as soon as its frames are there; one for the rest.

        A ring buffer holds as many frames as one clip covers.
        """
        windows = model_windows(self.spec, fps, every, window)
        for picked in slide(map(self._shrink, frames), windows):
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
        """A camera by number, a device or an address, for as long as it lasts.

        Always the newest frames: a model slower than the camera leaves windows out, it does not fall behind. A source
        that gives nothing for `time_limit` seconds is an error.
        """
        with stream_live(
            source,
            format=format,
            options=options,
            time_limit=self.time_limit,
            square_pixels=self.reader.square_pixels,
        ) as stream:
            windows = model_windows(self.spec, stream.fps, every, window)
            # closed before the source is, whenever the caller stops: its thread reads from it
            with closing(latest_windows(map(self._shrink, stream.frames), windows)) as newest:
                for picked in newest:
                    yield from self._predict_windows([picked], stream, str(source))

    def _shrink(self, frame: Any) -> UInt8[Tensor, "h w 3"]:
        return self.reader.resize(as_frames([frame]))[0]

    def _predict_windows(
        self, windows: Sequence[Picked[Tensor]], stream: FrameStream, video: PathLikeStr
    ) -> Iterator[Prediction]:
        cut = (self.reader.crop(torch.stack(picked.frames).to(self.device)) for picked in windows)
        scores = self.score(chain.from_iterable(cut))
        crops = self.reader.num_crops
        for i, picked in enumerate(windows):
            own = {task: of_all[i * crops : (i + 1) * crops][None] for task, of_all in scores.items()}
            start, end = stream.clock.seconds(picked.start), stream.clock.seconds(picked.end)
            facts = replace(picked.facts, damaged=stream.is_damaged(picked.end))
            yield Prediction(fspath(video), self.labels, own, start, end, facts)


def _read_all(reader: ClipReader, paths: list[str], num_workers: int) -> Generator[Views | str, None, None]:
    """The views of each, or why there are none."""
    if num_workers == 0:
        yield from (_read(reader, path) for path in paths)
        return
    found = run_in_order(
        _ReadAlone(reader),
        paths,
        num_workers=num_workers,
        time_limit=HUNG * reader.time_limit,
        context=multiprocessing.get_context(),  # as a torch loader starts its own: no new rule for scripts
    )
    with closing(found):
        for views in found:
            yield views.reason if isinstance(views, Crash) else views


class _ReadAlone:
    """The work of a process of `predict_many`."""

    def __init__(self, reader: ClipReader) -> None:
        self.reader = reader

    def __call__(self, path: str) -> Views | str:
        torch.set_num_threads(1)  # one core a process; and the threads of a forked one's parent are not there
        return _read(self.reader, path)


def _read(reader: ClipReader, path: str) -> Views | str:
    try:
        return reader.read(Path(path))
    except VideoError as error:
        return error.full_reason
