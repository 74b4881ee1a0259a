"""One page that holds everything: no other file, no network, no script."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape

from motionformer.data.motion import MotionBenchmark, MotionClip
from motionformer.demo.pictures import data_address, draw_curves, gif, svg
from motionformer.evaluation import Results, confusion
from motionformer.evaluation.classes import SINGLE
from motionformer.evaluation.intervals import show_interval
from motionformer.evaluation.pictures import draw_confusion
from motionformer.files import write_atomically
from motionformer.models import Motionformer
from motionformer.trace import PathErrors, trace
from motionformer.training.recipe import Recipe
from motionformer.training.run import FinishedRun, validation_intervals
from motionformer.video import open_video

NUM_EXAMPLES = 8
NUM_FILMSTRIPS = 3
MARGIN = 0.15  # of the frame: about the radius of a disc


@dataclass(frozen=True)
class Facts:
    """What the report tells."""

    recipe: Recipe
    run: FinishedRun
    results: Results
    summary: dict[str, Any]
    videos: Path
    paths: PathErrors
    clips: MotionBenchmark
    seconds: float


def write_report(file: Path, model: Motionformer, facts: Facts) -> Path:
    """Fill in the page and put it at `file`, whole or not at all."""
    loader = PackageLoader("motionformer.demo", ".")
    page = Environment(loader=loader, autoescape=select_autoescape(["html", "j2"]), trim_blocks=True)
    text = page.get_template("report.html.j2").render(
        facts=facts,
        task=facts.summary["tasks"][SINGLE],
        curves=draw_curves(facts.run.folder / "metrics.csv"),
        confusion=svg(draw_confusion(confusion(facts.results), facts.results.header.class_names[SINGLE])),
        examples=show_examples(facts.results),
        filmstrips=show_filmstrips(model, facts),
        one_video=min(facts.videos.rglob("*.mp4")),
        machine=facts.run.card["machine"],
        software=facts.run.card["software"],
        interval=lambda sure: show_interval(sure["low"], sure["high"]),
        validation=validation_intervals(facts.run.kept, facts.recipe.data.val_clips)["top1"],
    )
    write_atomically(file, text)
    return file


def show_examples(results: Results) -> list[dict[str, Any]]:
    """Some videos with their predictions: one a class, those that went wrong before the others."""
    names = results.header.class_names[SINGLE]
    scores, labels = results.averaged(SINGLE), results.labels[SINGLE]
    order = sorted(np.flatnonzero(results.readable), key=lambda i: (scores[i].argmax() == labels[i], i))
    chosen: dict[int, int] = {}
    for i in order:
        chosen.setdefault(int(labels[i]), int(i))
    return [
        {
            "picture": gif(_frames(results.paths[i])),
            "id": results.ids[i],
            "truth": names[labels[i]],
            "top": [(names[k], float(scores[i][k])) for k in scores[i].argsort()[::-1][:3]],
            "right": scores[i].argmax() == labels[i],
        }
        for i in sorted(chosen.values())[:NUM_EXAMPLES]
    ]


def show_filmstrips(model: Motionformer, facts: Facts) -> list[dict[str, str]]:
    """Where the patch on the disc looks, frame by frame, beside where the disc was; mean of all layers and heads."""
    shown = []
    every = (facts.clips[i] for i in range(len(facts.clips)))
    for clip in islice(filter(_stays_inside, every), NUM_FILMSTRIPS):
        found = trace(model, clip, layer="mean", name=facts.recipe.name)
        shown.append({"title": facts.clips.classes[clip.label], "picture": _png(found.to_png())})
    return shown


def _stays_inside(clip: MotionClip) -> bool:
    """Whether the disc never crosses the border, where one part of it is far from the other."""
    steps = clip.path.diff(dim=0).abs()
    edge = clip.path / clip.frames.shape[1]
    return bool(steps.max() < clip.frames.shape[1] / 2 and edge.min() > MARGIN and edge.max() < 1 - MARGIN)


def _png(content: bytes) -> str:
    return data_address(content, "image/png")


def _frames(path: str) -> Any:
    with open_video(path) as video:
        return video.read(range(video.metadata.num_frames)).numpy()
