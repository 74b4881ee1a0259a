"""A6: video object segmentation by label propagation, for several models on the same sequences.

Without `--data` the sequences are discs of the motion benchmark, whose masks are known; they are small and easy, and
show that the pieces work. With it they are those of a DAVIS folder. `weights=FILE` adds an image transformer, one with
the same shape and random weights, and the same weights inflated into a Motionformer. `small`, `middle` and `full` are
the heights, in pixels, at which tiny and image models see frames.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from av import VideoFrame

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import RecipeError
from motionformer.experiments.davis import Sequence, evaluate, find_sequences
from motionformer.experiments.davis.score import Scores
from motionformer.experiments.tables import Experiment, Request
from motionformer.experiments.tables.outcome import Line, Outcome
from motionformer.logging import show_count
from motionformer.models import Motionformer
from motionformer.runs import write_atomically
from motionformer.tracking import (
    Affinity,
    ClipFeatures,
    CopyFirst,
    LabelPropagation,
    TokenReadout,
    open_backbone,
    write_mask,
)
from motionformer.tracking.masks import write_png
from motionformer.tracking.tracker import Tracker
from motionformer.video.images import list_frames
from motionformer.weights.image import read_image_weights

_Metrics = dict[str, float]
_RELEASED = "k400_motionformer_224_16x4"
_PAPER = "60.6"  # J&F on DAVIS 2017 val
_SEQUENCES, _FRAMES, _SIZE = 4, 16, 192
_MIN_HEIGHT = 16
"""Pixels: one token of most models."""
_CLIP = 4
"""Frames that an inflated image model sees at once."""


def follow_objects(experiment: Experiment, request: Request) -> Outcome:
    """J, F and their mean for every tracker."""
    request.check_one_process()
    options = request.options(weights="", small=128, middle=240, full=480)
    for key in ("small", "middle", "full"):
        if options[key] < _MIN_HEIGHT:
            raise RecipeError(f"{key}={options[key]}: a height is {_MIN_HEIGHT} pixels or more.")
    if request.scale == "paper" and request.data is None:
        raise RecipeError("the original is DAVIS 2017: give its folder as --data.")
    root = request.data or _make_discs(request.out / "discs")
    sequences = find_sequences(root, year=2017, split="val") if request.scale == "paper" else find_sequences(root)
    kept = _StoredMetrics(
        request.out / "runs" / "a6",
        data=str(root.resolve()),
        content=_digest_sequences(sequences),
        options=options,
        weights=_stamp_file(options["weights"]),
    )
    lines_of: dict[str, list[Line]] = {"J&F": [], "J": [], "F": []}
    for label, make in _trackers(request, options).items():
        metrics = kept.read(label)
        if metrics is None and not request.train:
            continue
        if metrics is None:
            metrics = _score(sequences, make())  # made when its turn comes: large models are not held together
            kept.write(label, metrics)
        for name, lines in lines_of.items():
            published = _PAPER if name == "J&F" and label == _RELEASED else ""
            lines.append(Line(label, (100 * metrics[name],), metrics["seconds"], name, paper=published))
        request.tell(f"{label}: J&F {100 * metrics['J&F']:.1f}, {metrics['seconds']:.0f} s")
    if not lines_of["J&F"]:
        raise RecipeError(f"no finished row in {kept.folder}: without --collect they are computed.")
    frames = sum(len(sequence.masks) for sequence in sequences)
    names = ", ".join(sequence.name for sequence in sequences)
    about = f"{show_count(len(sequences), 'sequence')}, {show_count(frames, 'frame')}: {names}"
    return Outcome.of(experiment, request, about, [line for lines in lines_of.values() for line in lines], measure="%")


def _score(sequences: list[Sequence], tracker: Tracker) -> _Metrics:
    """J, F, their mean, and how long the masks took."""
    done = list(evaluate(sequences, tracker))
    found = Scores(tuple(score for _, scores, _ in done for score in scores))
    seconds = sum(taken for _, _, taken in done)
    return {"J&F": found.J_and_F, "J": found.J.mean, "F": found.F.mean, "seconds": seconds}


def _make_discs(root: Path) -> Path:
    """Clips of the motion benchmark in the layout of DAVIS."""
    clips = MotionBenchmark("medium", "val", _SEQUENCES, frames=_FRAMES, size=_SIZE)
    pixels = torch.arange(_SIZE) + 0.5
    for index in range(_SEQUENCES):
        clip, radius = clips[index], clips.scene(index).disc.radius * _SIZE
        frames, masks = (root / kind / "480p" / f"disc-{index}" for kind in ("JPEGImages", "Annotations"))
        frames.mkdir(parents=True, exist_ok=True)
        masks.mkdir(parents=True, exist_ok=True)
        x, y = ((pixels - clip.path[:, axis, None] + _SIZE / 2) % _SIZE - _SIZE / 2 for axis in (0, 1))  # a torus
        truth = (x[:, None, :] ** 2 + y[:, :, None] ** 2 <= radius**2).to(torch.uint8)
        for number, (frame, mask) in enumerate(zip(clip.frames, truth, strict=True)):
            write_png(frames / f"{number:05d}.png", VideoFrame.from_ndarray(frame.numpy(), format="rgb24"))
            write_mask(masks / f"{number:05d}.png", mask)
    return root


def _trackers(request: Request, options: dict[str, Any]) -> dict[str, Callable[[], Tracker]]:
    """What makes the tracker of each row asked for."""
    weights, small, middle, full = (options[key] for key in ("weights", "small", "middle", "full"))
    choices: dict[str, Callable[[], Tracker]]
    if request.scale == "paper":
        choices = {_RELEASED: lambda: _propagate(open_backbone(_RELEASED), full)}
    else:
        choices = {
            "the first mask, copied": CopyFirst,
            f"motionformer-tiny, random weights, {small} px": lambda: _propagate(
                open_backbone("motionformer-tiny"), small
            ),
            f"motion-tiny, {small} px": lambda: _propagate(open_backbone("motion-tiny"), small),
        }
    if weights:
        read_image_weights(weights)  # a wrong file raises now, not after the rows before it
        image = Path(weights).stem
        choices |= {
            f"{image}'s shape, random weights, {middle} px": lambda: _propagate(_random_like(weights), middle),
            f"{image}, frame by frame, {middle} px": lambda: _propagate(_image(weights), middle),
            f"{image}, inflated, clips of {_CLIP}, {middle} px": lambda: _propagate(
                _image(weights, _CLIP), middle, _CLIP
            ),
            f"{image}, frame by frame, {full} px": lambda: _propagate(_image(weights), full),
        }
    return {label: choices[label] for label in request.choose(choices)}


def _image(weights: str, clip: int | None = None) -> Motionformer:
    return open_backbone(weights, from_image=True, clip=clip)


def _random_like(weights: str) -> Motionformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Motionformer(_image(weights).config).eval()


def _propagate(model: Motionformer, height: int, clip: int | None = None) -> Tracker:
    try:
        features = ClipFeatures(model, TokenReadout(), clip=clip, height=height)
    except ValueError as error:
        raise RecipeError(f"small, middle and full are heights for the model: {error}") from error
    return LabelPropagation(features, Affinity(temperature=0.1))


class _StoredMetrics:
    """The metrics of each row in `folder`, found again by everything that identifies them."""

    def __init__(self, folder: Path, **made_of: Any) -> None:
        self.folder = folder
        self.made_of = made_of

    def read(self, row: str) -> _Metrics | None:
        """What was kept of a row with the same data and options; None if there is nothing."""
        try:
            stored = json.loads(self._file(row).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        metrics: _Metrics | None = stored["figures"] if stored.get("of") == self._identify(row) else None
        return metrics

    def write(self, row: str, metrics: _Metrics) -> None:
        text = json.dumps({"of": self._identify(row), "figures": metrics}, indent=1, ensure_ascii=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file(row), text)

    def _identify(self, row: str) -> dict[str, Any]:
        return {"row": row, **self.made_of}

    def _file(self, row: str) -> Path:
        text = json.dumps(self._identify(row), sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _digest_sequences(sequences: Iterable[Sequence]) -> str:
    """Changes with any mask, and with the names and sizes of the frames."""
    digest = hashlib.sha256()
    for sequence in sequences:
        digest.update(sequence.name.encode())
        for frame, mask in zip(list_frames(sequence.folder), sequence.masks, strict=True):
            digest.update(f"{frame.name} {frame.stat().st_size} {mask.name}".encode())
            digest.update(mask.read_bytes())
    return digest.hexdigest()


def _stamp_file(name: str) -> list[int]:
    """Size and time of a file, which change when it is replaced; nothing for what is no file."""
    if not name or not Path(name).is_file():
        return []
    status = Path(name).stat()
    return [status.st_size, status.st_mtime_ns]
