"""The demo's page, which holds everything: no other file, no network, no script. Pictures go in as text."""

import base64
import csv
import io
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from jinja2 import Environment, PackageLoader, select_autoescape
from matplotlib.figure import Figure
from PIL import Image

from motionformer.data.motion import MotionBenchmark, MotionClip
from motionformer.inference import Results, confusion
from motionformer.inference.metrics import show_interval
from motionformer.inference.pictures import draw_confusion
from motionformer.inference.scorer import SINGLE
from motionformer.models import Motionformer
from motionformer.runs import write_atomically
from motionformer.tracing import PathErrors, trace
from motionformer.training.recipe import Recipe
from motionformer.training.run import TrainingResult, validation_intervals
from motionformer.video import open_video

_NUM_EXAMPLES = 8
_NUM_FILMSTRIPS = 3
_MARGIN = 0.15  # of the frame: about the radius of a disc


@dataclass(frozen=True)
class Facts:
    """What the report tells."""

    recipe: Recipe
    run: TrainingResult
    results: Results
    summary: dict[str, Any]
    videos: Path
    paths: PathErrors
    clips: MotionBenchmark
    seconds: float


def write_report(file: Path, model: Motionformer, facts: Facts) -> Path:
    """Fill in the page and put it at `file`, whole or not at all."""
    loader = PackageLoader("motionformer.experiments.demo", ".")
    page = Environment(loader=loader, autoescape=select_autoescape(["html", "j2"]), trim_blocks=True)
    text = page.get_template("report.html.j2").render(
        facts=facts,
        task=facts.summary["tasks"][SINGLE],
        curves=_draw_curves(facts.run.folder / "metrics.csv"),
        confusion=_svg(draw_confusion(confusion(facts.results), facts.results.header.class_names[SINGLE])),
        examples=_show_examples(facts.results),
        filmstrips=_show_filmstrips(model, facts),
        one_video=min(facts.videos.rglob("*.mp4")),
        machine=facts.run.card["machine"],
        software=facts.run.card["software"],
        interval=lambda sure: show_interval(sure["low"], sure["high"]),
        validation=validation_intervals(facts.run.kept, facts.recipe.data.val_clips)["top1"],
    )
    write_atomically(file, text)
    return file


def _show_examples(results: Results) -> list[dict[str, Any]]:
    """Some videos with their predictions: one a class, those that went wrong before the others."""
    names = results.header.class_names[SINGLE]
    scores, labels = results.averaged(SINGLE), results.labels[SINGLE]
    order = sorted(np.flatnonzero(results.readable), key=lambda i: (scores[i].argmax() == labels[i], i))
    chosen: dict[int, int] = {}
    for i in order:
        chosen.setdefault(int(labels[i]), int(i))
    return [
        {
            "picture": _gif(_frames(results.paths[i])),
            "id": results.ids[i],
            "truth": names[labels[i]],
            "top": [(names[k], float(scores[i][k])) for k in scores[i].argsort()[::-1][:3]],
            "right": scores[i].argmax() == labels[i],
        }
        for i in sorted(chosen.values())[:_NUM_EXAMPLES]
    ]


def _show_filmstrips(model: Motionformer, facts: Facts) -> list[dict[str, str]]:
    """Where the patch on the disc looks, frame by frame, beside where the disc was; mean of all layers and heads."""
    shown = []
    every = (facts.clips[i] for i in range(len(facts.clips)))
    for clip in islice(filter(_stays_inside, every), _NUM_FILMSTRIPS):
        found = trace(model, clip, layer="mean", name=facts.recipe.name)
        shown.append({"title": facts.clips.classes[clip.label], "picture": _png(found.to_png())})
    return shown


def _stays_inside(clip: MotionClip) -> bool:
    """Whether the disc never crosses the border, where one part of it is far from the other."""
    steps = clip.path.diff(dim=0).abs()
    edge = clip.path / clip.frames.shape[1]
    return bool(steps.max() < clip.frames.shape[1] / 2 and edge.min() > _MARGIN and edge.max() < 1 - _MARGIN)


def _png(content: bytes) -> str:
    return _data_address(content, "image/png")


def _frames(path: str) -> Any:
    with open_video(path) as video:
        return video.read(range(video.metadata.num_frames)).numpy()


_INK, _BLUE, _ORANGE = "#33404d", "#2563a8", "#c2571a"


def _draw_curves(metrics: Path) -> str:
    """Loss of every logged step, and accuracy on held-out clips, from a run's `metrics.csv`."""
    with metrics.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curve(left, rows, "train/loss", _BLUE, 1.0)
    left.set(xlabel="step", title="loss, training")
    _curve(right, rows, "val/top1", _ORANGE, 100.0, marker="o")
    right.set(xlabel="step", title="top-1 on held-out clips, %", ylim=(0, 101))
    return _svg(figure)


def _curve(axes: object, rows: list[dict[str, str]], name: str, colour: str, scale: float, marker: str = "") -> None:
    points = [(int(row["step"]), scale * float(row[name])) for row in rows if row.get(name)]
    axes.plot(*zip(*points, strict=True), color=colour, marker=marker)  # type: ignore[attr-defined]
    axes.grid(alpha=0.25)  # type: ignore[attr-defined]
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)  # type: ignore[attr-defined]


def _svg(figure: Figure) -> str:
    """The drawing without the XML declaration, which has no place inside a page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _gif(frames: UInt8[np.ndarray, "t H W 3"], scale: int = 3, milliseconds: int = 120) -> str:
    """The frames as a looping picture, enlarged without blur, as a data address."""
    out = io.BytesIO()
    first, *others = (Image.fromarray(f.repeat(scale, axis=0).repeat(scale, axis=1)) for f in frames)
    first.save(out, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0)
    return _data_address(out.getvalue(), "image/gif")


def _data_address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
