"""A video's tokens instead of its classes: the class token, their mean, or all of them, of any block, by segments.

For what is built on top of the backbone: retrieval, detection, audio-visual synchronisation (short segments, every
token of each, and a mask over tokens that are not there).

On disk: one npz or safetensors file per video, written whole or not at all, with `values` and `times` as in `Features`
and what made them as JSON, in the array `about` (npz) or in the metadata (safetensors).
"""

import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from zipfile import BadZipFile

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Float64, Shaped
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from motionformer.attention import SCHEMES
from motionformer.data import ClipReader, middle_sampler
from motionformer.deprecation import renamed_arguments
from motionformer.distributed import current_rank
from motionformer.errors import EvaluationError, VideoError
from motionformer.inference.inputs import Input, run_job
from motionformer.inference.opening import open_input
from motionformer.inference.results import READ
from motionformer.inference.scorer import Precision, SampleBy, Scorer, batched, with_views
from motionformer.inference.timeline import Windows
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.models.head import ClassReadout
from motionformer.runs import Entry, atomic_write, check_output, naming, stamp_video
from motionformer.video import ReadFacts
from motionformer.video.memory import MemoryVideo
from motionformer.video.resample import Resample, by_clock
from motionformer.video.source import StreamClock
from motionformer.video.stream import FrameStream, constant_stream, stream_at_rate, stream_video
from motionformer.weights import load_model

What = Literal["class", "pooled", "tokens", "frames"]
Block = int | Literal["last"]
Format = Literal["npz", "safetensors"]
_Timed = tuple[tuple[float, float], Tensor, ReadFacts]


@dataclass(frozen=True, repr=False)
class Features:
    """Features of s segments of a video.

    Args:
        values: `[s c]`, `[s f y x c]` for tokens, or `[s f c]` for frames.
        times: `[s 2]`: start and end of each segment, in seconds.
        facts: how many frames of a clip differ, and whether the video is damaged.
    """

    values: Shaped[np.ndarray, "s ..."]
    times: Float64[np.ndarray, "s 2"]
    facts: ReadFacts | None = None

    def __repr__(self) -> str:
        covered = f", {self.times.min():.1f}–{self.times.max():.1f} s" if len(self.times) else ""
        return f"Features({' × '.join(map(str, self.values.shape))} {self.values.dtype}{covered})"


class FeatureExtractor:
    """Extracts tokens of videos: a model, which of its tokens are wanted, and how a video is cut into segments.

    Args:
        model: a model, or the name or path of weights as `load_model` takes it.
        device: where to compute; the model is moved there. [default: where the model is]
        precision: "32", "bf16" or "16".
        batch_size: segments per forward pass.
        what: "class": the class token; "pooled": the mean of the patch tokens; "tokens": all of these in their grid;
            "frames": a vector per token frame, of models with such a readout (Synchformer). These cut videos into
            overlapping segments of their own. [default: "frames" for these models, "class" for others]
        block: tokens as this block leaves them (0 is the first), or "last": after all blocks and the final norm.
        segments: seconds of each; the model's frames are spread over them evenly. [default: one segment, the clip in
            the middle of the video, as the weights were trained]
        hop: seconds from segment to segment. [default: as long as they are]
        sample_by: "frames" counts the clip's stride in the video's own frames, "time" at the model's rate. Segments
            have no stride. [default: the weights' own]
        protocol: of clips, "uniform" or "released", where `model` is a name or path. [default: the weights' own]
        resample: of "frames": how videos are read at the model's rate, "clock" or "filter" (docs/synchformer.md).
            [default: "clock"]
        seconds: of "frames": how much of a video is read. [default: all]
        time_limit: seconds for opening a file, and for reading it.

    Raises:
        EvaluationError: tokens or a block that the model does not have, options that exclude each other.

    Example:
        ```python
        extractor = FeatureExtractor("k400_motionformer_224_16x4", what="pooled", segments=2.0)
        extractor("talk.mp4").values  # [segments channels]
        ```
    """

    @renamed_arguments(batch="batch_size")
    def __init__(
        self,
        model: Motionformer | str | Path,
        *,
        device: str | torch.device | None = None,
        precision: Precision = "32",
        batch_size: int = 8,
        what: What | None = None,
        block: Block = "last",
        segments: float | None = None,
        hop: float | None = None,
        sample_by: SampleBy | None = None,
        protocol: SamplingProtocol | None = None,
        resample: Resample | None = None,
        seconds: float | None = None,
        time_limit: float = 30.0,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            model = load_model(model, protocol=protocol)
        depth, prefix = len(model.blocks), model.config.num_prefix_tokens
        by_frame = model.config.readout == "frames"
        what = what or ("frames" if by_frame else "class" if prefix else "pooled")
        if what not in get_args(What):
            raise EvaluationError(f"`what` ({what!r}) must be one of {', '.join(get_args(What))}.")
        if what == "frames":
            _check_frames(model, (block != "last", segments, hop, sample_by))
        elif resample is not None or seconds is not None:
            raise EvaluationError("`resample` and `seconds` are of features of 'frames', as a Synchformer gives them.")
        if resample not in (None, *get_args(Resample)):
            raise EvaluationError(f"`resample` ({resample!r}) must be one of {', '.join(get_args(Resample))}.")
        if seconds is not None and not 0 < seconds < float("inf"):
            raise EvaluationError(f"`seconds` ({seconds:g}) must be a number of seconds above 0.")
        if what == "class" and not prefix:
            raise EvaluationError("this model has no class token; use pooled or tokens.")
        if block != "last" and not (isinstance(block, int) and 0 <= block < depth):
            raise EvaluationError(f"the model's blocks are 0 to {depth - 1}, or 'last' (with the norm); not {block!r}.")
        if hop is not None and segments is None:
            raise EvaluationError("`hop` is from segment to segment: give `segments`, their length.")
        if sample_by is not None and segments is not None:
            raise EvaluationError("frames are spread over segments evenly: leave `sample_by` out.")
        self.scorer = Scorer(model, device, batch_size=batch_size, precision=precision)
        self.device, self.model = self.scorer.device, model.eval()
        self.batch_size, self.precision = batch_size, precision
        self.what, self.block, self.segments, self.hop = what, block, segments, hop
        self.resample: Resample = resample or "clock"
        self.seconds = seconds
        self.spec = with_views(model.config.input, 1, 1, sample_by)
        self.reader = ClipReader(self.spec, sampler=middle_sampler(self.spec), crops=("centre",), time_limit=time_limit)

    @classmethod
    def from_pretrained(
        cls, source: str | Path, device: str | torch.device | None = None, **options: Any
    ) -> "FeatureExtractor":
        """The same as `FeatureExtractor(source, device=device, **options)`."""
        return cls(source, device=device, **options)

    def __call__(self, video: Any, *, fps: float | None = None) -> Features:
        """Features of all of a video's segments, in memory; `stream` gives them a batch at a time.

        Args:
            video: one video, as `Predictor` takes it.
            fps: of frames in memory. A file has its own. [default: the model's rate]

        Raises:
            VideoError: for what cannot be read.
            TypeError, ValueError: for what is no video.
        """
        parts = list(self.stream(video, fps=fps))
        facts = ReadFacts.together(part.facts for part in parts if part.facts is not None)
        return Features(np.concatenate([p.values for p in parts]), np.concatenate([p.times for p in parts]), facts)

    def stream(self, video: Any, *, fps: float | None = None) -> Iterator[Features]:
        """A batch of segments at a time; each frame is decoded once, memory does not grow with the video."""
        with open_input(video, self.spec, fps) as opened:
            yield from self._encode_all(self._clips(opened.source))

    @torch.inference_mode()
    def encode(
        self, clips: Shaped[Tensor, "b 3 t H W"], mask: Bool[Tensor, "b f y x"] | None = None
    ) -> Float[Tensor, "b ..."]:
        """Features of normalised clips, in float32.

        `mask` is True for tokens that are there: nobody attends to the others, and they come out as zeros.
        """
        if clips.ndim != 5 or clips.shape[1] != 3 or not clips.is_floating_point():
            raise ValueError(
                "clips are normalised floats [b 3 t H W]; not"
                f" {str(clips.dtype).removeprefix('torch.')} {list(clips.shape)}. Call the extractor with frames."
            )
        model, p = self.model, self.model.config.num_prefix_tokens
        clips = clips.to(self.device)
        if self.what == "frames":
            if mask is not None:
                raise EvaluationError("features of 'frames' take no mask.")
            with self.scorer.computing(len(clips)):
                return self.scorer.check_finite(model(clips).float(), "features")
        grid = model.tokens.grid(clips)
        seen = None if mask is None else _with_prefix(mask.to(self.device), grid, p)
        with self.scorer.computing(len(clips)):
            x = model.embed(clips)
            for index, block in enumerate(model.blocks):
                x = block(x, grid[0]) if seen is None else block(x, grid[0], seen)
                if index == self.block:
                    break
            x = (model.norm(x) if self.block == "last" else x).float()
        patches = rearrange(x[:, p:], "b (f y x) c -> b f y x c", f=grid[0], y=grid[1])
        if SCHEMES[model.config.attention].prefix_per_frame:  # of several class tokens, their mean
            x = torch.cat((ClassReadout.of(model.config)(x, grid)[:, None], x[:, 1:]), dim=1)
        values = _READ[self.what](x[:, :p], patches, mask if mask is None else mask.to(self.device))
        return self.scorer.check_finite(values, "features")

    def describe(self) -> dict[str, Any]:
        """What these features are, in plain values."""
        made: dict[str, Any] = {"what": self.what, "block": self.block, "segments": self.segments, "hop": self.hop}
        if self.spec.fps != self.model.config.input.fps:  # only where it is chosen: older files stay valid
            made["sample_by"] = "frames" if self.spec.fps is None else "time"
        if self.spec.protocol != "uniform":
            made["protocol"] = self.spec.protocol
        if self.what == "frames":
            made |= {"resample": self.resample, "seconds": self.seconds}
        return made

    def _encode_all(self, clips: Iterator[_Timed]) -> Iterator[Features]:
        for some in batched(clips, self.batch_size):
            values = self.encode(torch.stack([clip for _, clip, _ in some]))
            times = np.array([times for times, _, _ in some], dtype=np.float64)
            yield Features(values.cpu().numpy(), times, ReadFacts.together(facts for _, _, facts in some))

    def _clips(self, video: Path | MemoryVideo) -> Iterator[_Timed]:
        reader = self.reader
        if self.what == "frames":
            with self.open_at_rate(video) as stream:
                yield from self.overlapping(stream)
        elif self.segments is None:
            views = reader.read(video)
            yield views.times[0], next(reader.clips(views, self.device)), views.facts
        elif isinstance(video, Path):
            with stream_video(video, time_limit=reader.time_limit, square_pixels=reader.square_pixels) as stream:
                yield from self._segments(stream, self.segments)
        else:
            fps = video.metadata.fps
            yield from self._segments(FrameStream(fps, video.frames(), StreamClock(fps)), self.segments)

    def open_at_rate(self, video: Path | MemoryVideo) -> AbstractContextManager[FrameStream]:
        """A video at the rate of a model that takes overlapping segments."""
        rate = round(self.spec.fps or 25.0)
        if isinstance(video, Path):
            return stream_at_rate(video, rate, self.resample, seconds=self.seconds, time_limit=self.reader.time_limit)
        if self.resample == "filter":
            raise EvaluationError("frames in memory have no time stamps for FFmpeg's filter: leave `resample` out.")
        timed = ((i / video.metadata.fps, frame) for i, frame in enumerate(video.frames()))
        return nullcontext(constant_stream(rate, by_clock(timed, rate, self.seconds)))

    def overlapping(self, stream: FrameStream) -> Iterator[_Timed]:
        """The segments of a stream at the model's rate: times, clips, facts. Less than a hop at the end is left out."""
        length, hop = self.spec.frames, self.spec.hop or self.spec.frames
        held: deque[tuple[Tensor, Tensor]] = deque(maxlen=length)  # as decoded, and at the model's size
        count = 0
        for frame in stream.frames:
            small = held[-1][1] if held and held[-1][0] is frame else self.reader.resize(frame[None])[0]
            held.append((frame, small))
            count += 1
            if count >= length and (count - length) % hop == 0:
                clip = next(self.reader.crop(torch.stack([small for _, small in held]).to(self.device)))
                facts = ReadFacts(length, len({id(small) for _, small in held}), stream.is_damaged(count))
                yield ((count - length) / stream.fps, count / stream.fps), clip, facts
        if count < length:
            raise VideoError(f"is too short: {count} frames at {stream.fps:g} per second, a segment takes {length}")

    def _segments(self, stream: FrameStream, seconds: float) -> Iterator[_Timed]:
        windows = Windows.even(self.spec, stream.fps, seconds, self.hop)
        small = (self.reader.resize(frame[None])[0] for frame in stream.frames)
        for picked in windows.slide(small):
            clip = next(self.reader.crop(torch.stack(picked.frames).to(self.device)))
            facts = replace(picked.facts, damaged=stream.is_damaged(picked.end))
            yield (stream.clock.seconds(picked.start), stream.clock.seconds(picked.end)), clip, facts


def _write_features(
    file: Path, parts: Iterable[Features], about: Mapping[str, Any], dtype: str = "float32"
) -> tuple[tuple[int, ...], ReadFacts | None]:
    """Write a video's features as they come, to the format of the file's ending; its facts are added to `about`.

    They go through a file, so that an hour of tokens does not have to fit into memory; only writing safetensors takes
    all of a video's values at once.

    Returns:
        The shape of `values`, and the facts.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with naming(file), tempfile.TemporaryFile(dir=file.parent) as store:
        times: list[Any] = []
        facts: list[ReadFacts] = []
        shape: tuple[int, ...] = ()
        for part in parts:
            store.write(np.ascontiguousarray(part.values, dtype=dtype).tobytes())
            times.append(part.times)
            facts += [] if part.facts is None else [part.facts]
            shape = part.values.shape[1:]
        store.flush()
        values = np.memmap(store, dtype=dtype, mode="r", shape=(sum(map(len, times)), *shape))
        together = ReadFacts.together(facts) if facts else None
        text = json.dumps({**about, **({} if together is None else together.to_dict())})
        all_times = np.concatenate(times)
        with atomic_write(file) as stream:
            if file.suffix == ".npz":
                np.savez(stream, values=values, times=all_times, about=np.array(text))
            else:
                stream.write(save({"values": np.asarray(values), "times": all_times}, metadata={"about": text}))
        return tuple(values.shape), together


def read_features(file: Path) -> tuple[Features, dict[str, Any]]:
    """The features of a file, and what made them.

    Raises:
        EvaluationError: it is no file of features.
    """
    (values, times), about = _read(file, "values", "times")
    facts = ReadFacts(*(about[key] for key in READ)) if "distinct_frames" in about else None
    return Features(values, times, facts), about


def extract_all(
    extractor: FeatureExtractor,
    videos: Sequence[Input],
    out: Path,
    *,
    about: Mapping[str, Any],
    format: Format = "npz",
    dtype: str = "float32",
    resume: bool = False,
) -> list[Entry]:
    """Write a file per video; what became of each, in their order, on every rank.

    With `resume`, files that are there are kept, if they are of the same video, model and options.
    """
    files = dict(zip([video.path for video in videos], _output_files(videos, out, format), strict=True))
    for file in files.values():
        check_output(file)
    names = {video.path: video.name for video in videos}
    made_of = {**about, **extractor.describe(), "dtype": dtype}

    def work(paths: Sequence[Path]) -> Iterator[Entry]:
        for path in paths:
            own = {**made_of, "video": names[path], "stamp": stamp_video(path)}
            kept = _find_kept(files[path], own) if resume and files[path].exists() else None
            if kept is not None:
                yield {"video": str(path), "file": str(files[path]), "kept": True, **kept}
            else:
                yield _extract(extractor, path, files[path], own, dtype)

    current_rank().check_shared(out)
    return run_job(list(files), work, description="features", keeps=str(out))


def _class_token(prefix: Tensor, patches: Tensor, mask: Tensor | None) -> Tensor:
    return prefix[:, 0]


def _pooled(prefix: Tensor, patches: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of the tokens that are there; zeros where none is."""
    if mask is None:
        return patches.mean(dim=(1, 2, 3))
    count = mask.sum(dim=(1, 2, 3)).clamp(min=1)
    return _tokens(prefix, patches, mask).sum(dim=(1, 2, 3)) / count[:, None]


def _tokens(prefix: Tensor, patches: Tensor, mask: Tensor | None) -> Tensor:
    return patches if mask is None else patches.masked_fill(~mask[..., None], 0.0)


_READ: dict[What, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "class": _class_token,
    "pooled": _pooled,
    "tokens": _tokens,
}


def _check_frames(model: Motionformer, others: tuple[object, ...]) -> None:
    if model.config.readout != "frames" or model.config.input.hop is None:
        raise EvaluationError("this model has no features of 'frames'; a Synchformer has. Use class, pooled or tokens.")
    if any(other not in (None, False) for other in others):
        raise EvaluationError(
            "features of 'frames' have segments of their own: leave `block`, `segments`, `hop` and `sample_by` out."
        )


def _with_prefix(mask: Bool[Tensor, "b f y x"], grid: tuple[int, int, int], p: int) -> Bool[Tensor, "b n"]:
    if tuple(mask.shape[1:]) != tuple(grid):
        raise EvaluationError(f"the mask is {tuple(mask.shape[1:])}; the clips have {tuple(grid)} tokens.")
    flat = mask.flatten(1)
    return torch.cat((flat.new_ones(len(flat), p), flat), dim=1)


def _output_files(videos: Sequence[Input], out: Path, format: Format) -> list[Path]:
    """Named after the videos, endings included: a.mp4 and a.avi differ."""
    files = [out / f"{video.name}.{format}" for video in videos]
    taken: dict[Path, Path] = {}
    for file, video in zip(files, videos, strict=True):
        if file in taken:
            raise EvaluationError(
                f"{taken[file]} and {video.path} would both be written to {file}: give the folder that holds both, or"
                " write to two folders."
            )
        taken[file] = video.path
    return files


def _extract(extractor: FeatureExtractor, video: Path, file: Path, about: Mapping[str, Any], dtype: str) -> Entry:
    try:
        shape, facts = _write_features(file, extractor.stream(video), about, dtype)
    except VideoError as error:
        return {"video": str(video), "failed": error.full_reason}
    return {"video": str(video), "file": str(file), "shape": list(shape), **({} if facts is None else facts.to_dict())}


def _find_kept(file: Path, wanted: Mapping[str, Any]) -> Entry | None:
    """What the file was made from, if it is of this video as it is now; features of another model or kind are
    never taken for these."""
    _, found = _read(file)
    compared = {*wanted, "protocol", "sample_by"} - {"stamp"}  # the two are left out where they have their old value
    options = sorted(key for key in compared if found.get(key) != wanted.get(key))
    if options:
        raise EvaluationError(
            f"{file} holds other features: {', '.join(options)} differ. Give another folder, or leave --resume out to"
            " write over it."
        )
    return {key: found[key] for key in READ if key in found} if found["stamp"] == wanted["stamp"] else None


def _read(file: Path, *names: str) -> tuple[list[Any], dict[str, Any]]:
    """Arrays of a file of features, and what made them."""
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                return [arrays[name] for name in names], json.loads(str(arrays["about"]))
        with safe_open(file, framework="numpy") as opened:
            return [opened.get_tensor(name) for name in names], json.loads(opened.metadata()["about"])
    except (OSError, BadZipFile, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise EvaluationError(
            f"{file}: not a file of `motionformer features` ({error}). Remove it, or give another folder."
        ) from error
