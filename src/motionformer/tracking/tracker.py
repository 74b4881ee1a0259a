"""START HERE: a video and a mask of its first frame → masks of all frames, by a model or by copying. Streams."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.deprecation import check_arguments
from motionformer.errors import MaskError
from motionformer.logging import show_count
from motionformer.models import Motionformer, create_model
from motionformer.models.variants import VARIANTS
from motionformer.runs import make_folder
from motionformer.tracking.masks import (
    OverlayWriter,
    check_no_overwrite,
    check_output_kind,
    object_numbers,
    read_mask,
    write_mask,
)
from motionformer.tracking.propagation import (
    Affinity,
    AttentionReadout,
    ClipFeatures,
    Readout,
    TokenReadout,
    propagate_mask,
)
from motionformer.video import Video, open_video
from motionformer.video.stream import stream_video
from motionformer.weights import from_image_weights, load_model
from motionformer.weights.image import read_image_weights

if TYPE_CHECKING:
    from motionformer.inference import Predictor

_OTHER_VIDEOS = {".avi", ".gif", ".m4v", ".mkv", ".mov", ".mpg", ".ogv", ".webm"}


@dataclass(frozen=True)
class TrackResult:
    """What `track` found and wrote.

    Attributes:
        video: the file or folder that was tracked.
        num_frames: frames that were tracked.
        objects: the number of frames in which each object of the first mask is visible, by object number.
        masks: object numbers `[t H W]`, uint8; None if they were written (`output`, `overlay`), as a video of any
            length is tracked in little memory then.
        output: folder of the written masks, if any.
        overlay: the written overlay, if any.
    """

    video: Path
    num_frames: int
    objects: dict[int, int]
    masks: UInt8[Tensor, "t H W"] | None = None
    output: Path | None = None
    overlay: Path | None = None

    def __repr__(self) -> str:
        objects = ", ".join(f"{number}: {frames}" for number, frames in self.objects.items())
        written = "".join(f", {file}" for file in (self.output, self.overlay) if file is not None)
        return (
            f"TrackResult({self.video.name!r}, {show_count(self.num_frames, 'frame')}, visible {{{objects}}}{written})"
        )


def track(
    model: "Tracker | Motionformer | Predictor | str | Path",
    video: str | Path,
    mask: str | Path | UInt8[Tensor, "H W"],
    *,
    output: str | Path | None = None,
    overlay: str | Path | None = None,
    progress: Callable[[Iterable[Tensor], int], Iterable[Tensor]] = lambda masks, _: masks,
    **options: Any,
) -> TrackResult:
    """Track the objects of a first mask through a video.

    Args:
        model: a `Tracker`, or what `make_tracker` takes: a model, a `Predictor`, a name, folder or file of weights.
        video: a video file, or a folder of frames.
        mask: of the first frame: a PNG file (see `read_mask`) or object numbers, 0 for the background.
        output: folder to write a palette PNG per frame into.
        overlay: video with the masks drawn over it: an mp4 file, or a folder of PNG files.
        progress: wraps the masks and the number of frames, to show a progress bar.
        **options: of `make_tracker`.

    Returns:
        The masks, or where they were written, and the number of frames in which each object is visible.

    Raises:
        MaskError: a mask that does not fit the video, or an output that would overwrite what is read.
        VideoError: the video cannot be read; what was tracked until there stays written.

    Example:
        ```python
        from motionformer import track

        found = track("motion-tiny", "dog.mp4", "first.png", height=240)
        print(found, found.masks.shape)
        track("dinov2_vits14.safetensors", "dog.mp4", "first.png", from_image=True, overlay="tracked.mp4")
        ```
    """
    if isinstance(model, Tracker) and options:
        raise TypeError(f"{', '.join(options)}: options of `make_tracker`; this tracker is made already.")
    check_arguments("track", options, track, make_tracker)
    video = Path(video)
    output, overlay = (None if file is None else Path(file) for file in (output, overlay))
    mask_file = None if isinstance(mask, Tensor) else Path(mask)
    _check_output(video, mask_file, output, overlay)
    first = mask if isinstance(mask, Tensor) else read_mask(mask)
    with open_video(video) as opened:
        check_first_mask(first, opened, mask_file or Path("mask"))
        metadata = opened.metadata
    tracker = model if isinstance(model, Tracker) else make_tracker(model, **options)
    names = (f"{i:05d}.png" for i in count())
    running = track_and_write(video, first, tracker, masks=output, names=names, overlay=overlay, fps=metadata.fps)
    kept: list[Tensor] | None = [] if output is None and overlay is None else None
    objects, num_frames = dict.fromkeys(object_numbers(first), 0), 0
    for found in progress(running, metadata.num_frames):
        num_frames += 1
        for number in object_numbers(found):
            objects[number] += 1
        if kept is not None:
            kept.append(found)
    return TrackResult(video, num_frames, objects, None if kept is None else torch.stack(kept), output, overlay)


class Tracker(ABC):
    """`track(frames, first)` yields a mask for each frame, the given one first."""

    @abstractmethod
    def track(
        self, frames: Iterable[UInt8[Tensor, "H W 3"]], first: UInt8[Tensor, "H W"]
    ) -> Iterator[UInt8[Tensor, "H W"]]:
        """Yield the mask of each frame.

        Args:
            frames: decoded, RGB; read as they are needed.
            first: the mask of the first frame.
        """


@dataclass(frozen=True)
class LabelPropagation(Tracker):
    """Propagates labels from the first and the latest `context` frames to the next, where tokens are similar.

    Attributes:
        features: frames → tokens.
        affinity: similarity → weights.
        context: latest frames that give labels, beside the first.
        stretch: stretch the label of every object to 0 … 1 before they are compared.

    Example:
        ```python
        tracker = LabelPropagation(ClipFeatures(open_backbone("motion-tiny"), height=240), Affinity(top_k=7))
        masks = list(tracker.track(frames, first))
        ```
    """

    features: ClipFeatures
    affinity: Affinity
    context: int = 7
    stretch: bool = True

    def track(
        self, frames: Iterable[UInt8[Tensor, "H W 3"]], first: UInt8[Tensor, "H W"]
    ) -> Iterator[UInt8[Tensor, "H W"]]:
        tokens = self.features(frames)
        return propagate_mask(tokens, first, self.affinity, context=self.context, stretch=self.stretch)


class CopyFirst(Tracker):
    """The first mask for every frame: the baseline."""

    def track(
        self, frames: Iterable[UInt8[Tensor, "H W 3"]], first: UInt8[Tensor, "H W"]
    ) -> Iterator[UInt8[Tensor, "H W"]]:
        return (first for _ in frames)


def make_tracker(
    model: "Motionformer | Predictor | str | Path",
    *,
    from_image: bool = False,
    clip: int | None = None,
    height: int = 480,
    affinity: Literal["features", "attention"] = "features",
    block: int = -1,
    context: int = 7,
    radius: int | None = 12,
    top_k: int | None = 5,
    temperature: float | None = None,
    stretch: bool = True,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> Tracker:
    """Make a tracker from a model or weights.

    Args:
        model: a model, a `Predictor`, what `open_backbone` takes, or `copy` (`CopyFirst`).
        from_image: the weights are an image transformer's.
        clip: frames that the model sees at once [default: its own; 1 for image weights].
        height: at which the model sees frames, in pixels.
        affinity: compare tokens (`features`), or queries with keys of the attention (`attention`).
        block: whose tokens or attention; negative numbers count from the last.
        context: latest frames that give labels, beside the first.
        radius: of the neighbourhood in tokens; None is the whole frame.
        top_k: tokens that give a label; None is all.
        temperature: of the softmax [default: 0.1 for features, 1 for attention].
        stretch: stretch every label to 0 … 1 before they are compared; without it, what has left stays away.
        seed: of random weights.
        device: to compute on; the model is moved there [default: where the model is].

    Returns:
        A tracker for any number of videos.

    Raises:
        ValueError: an option that does not fit the model.

    Example:
        ```python
        from motionformer.tracking import make_tracker, track

        tracker = make_tracker("motion-tiny", height=240, top_k=7)
        for video in ("a", "b"):
            track(tracker, f"{video}.mp4", f"{video}.png", output=f"masks/{video}")
        ```
    """
    if model == "copy":
        return CopyFirst()
    readout: Readout = TokenReadout(block) if affinity == "features" else AttentionReadout(block)
    if isinstance(model, (str, Path)):
        model = open_backbone(model, from_image=from_image, clip=clip, seed=seed)
    elif not isinstance(model, Motionformer):
        model = model.model
    if device is not None:
        model.to(device)
    features = ClipFeatures(model, readout, clip=clip, height=height)
    weights = Affinity(radius, top_k, temperature or readout.default.temperature)
    return LabelPropagation(features, weights, context, stretch)


def track_and_write(
    video: Path,
    first: UInt8[Tensor, "H W"],
    tracker: Tracker,
    *,
    masks: Path | None,
    names: Iterable[str],
    overlay: Path | None,
    fps: float,
) -> Generator[UInt8[Tensor, "H W"], None, None]:
    """Masks of a video, each written on its way through: as `masks/NAME`, and over its frame into `overlay`."""
    with stream_video(video) as stream, ExitStack() as stack:
        again: Iterator[Tensor] | None = None
        frames: Iterator[Tensor] = stream.frames
        writer: OverlayWriter | None = None
        if overlay is not None:  # only then: a copy that is not read would grow with the video
            frames, again = tee(frames)
            writer = stack.enter_context(OverlayWriter(overlay, fps=fps))
        predicted = tracker.track(frames, first)
        if masks is not None:
            make_folder(masks)
            predicted = _write_masks(predicted, masks, names)
        for mask in predicted:
            if writer is not None and again is not None:
                writer.add(next(again), mask)
            yield mask


def _write_masks(predicted: Iterable[Tensor], folder: Path, names: Iterable[str]) -> Iterator[Tensor]:
    """Frames without a name are not tracked."""
    for mask, name in zip(predicted, names, strict=False):
        write_mask(folder / name, mask)
        yield mask


def check_first_mask(mask: UInt8[Tensor, "H W"], video: Video, file: Path) -> None:
    """Raise `MaskError` for a mask that shows nothing or is not the size of the frames."""
    size = (video.metadata.height, video.metadata.width)
    if tuple(mask.shape) != size:
        raise MaskError(
            f"{file}: the mask is {mask.shape[1]} × {mask.shape[0]}, the frames of {video.path} are "
            f"{size[1]} × {size[0]}."
        )
    if not object_numbers(mask):
        raise MaskError(
            f"{file}: the mask shows no object, so there is nothing to track: 0 is background, and 255 of a palette"
            " is unlabelled."
        )


def open_backbone(
    source: str | Path, *, from_image: bool = False, clip: int | None = None, seed: int = 0
) -> Motionformer:
    """Load the model of a tracker.

    Args:
        source: what `load_model` takes, or the name of a variant: one with random weights, drawn from `seed`.
        from_image: `source` is a file of image weights, applied frame by frame (joint attention in clips of one) or,
            for a `clip` of several frames, inflated into a Motionformer. That one has no value projection along time:
            a new one would be random, and the image model's features lost.
        clip: frames per clip, for image weights.
        seed: of random weights.

    Returns:
        The model without a classifier, in evaluation mode.

    Example:
        >>> open_backbone("joint-tiny").config.attention
        'joint'
    """
    if from_image:
        return _from_image(source, clip or 1)
    if str(source).lower().replace("_", "-") in VARIANTS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return create_model(str(source), num_classes=0).eval()
    return load_model(source)


def _from_image(source: str | Path, frames: int) -> Motionformer:
    weights, _ = read_image_weights(source)
    # position embeddings of the stored size: resized once, to the frame (rotary ones have no size)
    side = math.isqrt(weights["pos_embed"].shape[1]) if "pos_embed" in weights else 14
    model, _ = from_image_weights(
        source,
        num_classes=0,
        size=side * weights["patch_embed.proj.weight"].shape[-1],
        tubelet=1,
        frames=frames,
        attention="joint" if frames == 1 else "trajectory",
        project_values=False,
    )
    return model.eval()


def _check_output(video: Path, mask: Path | None, output: Path | None, overlay: Path | None) -> None:
    """The masks or the overlay of a video must not replace the video, its frames, or its first mask."""
    for option, file in (("--output", output), ("--overlay", overlay)):
        if file is None:
            continue
        if option == "--overlay" and file.suffix.lower() in _OTHER_VIDEOS:
            raise MaskError(f"--overlay: {file}: the suffix must be .mp4 (or none, for a folder of png files).")
        check_output_kind(option, file, is_file=option == "--overlay" and file.suffix.lower() == ".mp4")
        check_no_overwrite(option, file, video, "the video that is tracked")
        if mask is not None and re.fullmatch(r"[0-9]{5,}", mask.stem):  # as the files written there are called
            check_no_overwrite(option, file, mask.parent, f"the folder of {mask}, which would be overwritten")
    if output is not None and overlay is not None:
        check_no_overwrite("--overlay", overlay, output, "the folder of --output, whose files have the same names")
