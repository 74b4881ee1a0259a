"""The whole product in one call: data → training → multi-view test → trajectories → a page. Start reading here.

FOLDER/videos/    real mp4 files of the motion benchmark, never trained on
FOLDER/run/       the training run: recipe, metrics, checkpoints, card, model
FOLDER/results/   the test: scores of every view of every video, figures as JSON and csv
FOLDER/report.html  the page: no other file, no network, no script; pictures go in as text

Each part is what its own command leaves behind, and a part that is complete is not made again.
"""

import base64
import csv
import io
import json
import shutil
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from jinja2 import Environment, PackageLoader, select_autoescape
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from motionformer.data import open_dataset
from motionformer.data.motion import MotionBenchmark, MotionClip, write_videos
from motionformer.data.source import parse_motion
from motionformer.errors import RecipeError
from motionformer.inference import FileVideos, Results, confusion, evaluate, print_summary, write_reports
from motionformer.inference.metrics import show_interval
from motionformer.inference.pictures import draw_confusion
from motionformer.inference.scorer import SINGLE
from motionformer.models import Motionformer
from motionformer.runs import make_folder, write_atomically
from motionformer.tracing import PathErrors, path_error, trace
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.run import TrainingResult, train
from motionformer.video import open_video
from motionformer.weights import load_model

_RECIPE = "motion/easy"
_NUM_VIDEOS = 128
_FRAMES = 16  # twice a clip's: room for views at different times
_VIEWS = 3
_NUM_TRACED = 48  # clips over which paths are compared with the truth
_NUM_EXAMPLES = 8
_NUM_FILMSTRIPS = 3
_MARGIN = 0.15  # of the frame: about the radius of a disc
_BLUE, _ORANGE = "#2563a8", "#c2571a"


@dataclass(frozen=True)
class Demo:
    """What the demo left behind."""

    folder: Path
    report: Path
    summary: dict[str, Any]
    run: TrainingResult
    paths: PathErrors
    seconds: float


def run_demo(
    folder: str | Path, *, overrides: tuple[str, ...] = (), num_videos: int = _NUM_VIDEOS, quiet: bool = False
) -> Demo:
    """Train the recipe `motion/easy` (changed by `overrides`) in `folder`, test it on videos, write the report."""
    started = time.monotonic()
    folder = Path(folder)
    make_folder(folder)
    console = Console(stderr=True, quiet=quiet)
    show = partial(console.print, style="bold", highlight=False, markup=False, soft_wrap=True)
    recipe = replace(load_recipe(_RECIPE, overrides), output=str(folder / "run"))
    level = _level(recipe)

    show(f"1/4  {num_videos} test videos: {folder / 'videos'}")
    videos = _make_videos(folder / "videos", level, num_videos, recipe.seed)
    show(f"2/4  training {recipe.name}: {folder / 'run'}")
    run = train(recipe, quiet=quiet)
    show(f"3/4  testing, {_VIEWS} views per video: {folder / 'results'}")
    results = _test(run.model, videos, folder / "results", show_progress=not quiet)
    summary = write_reports(results, folder / "results")
    if not quiet:
        print_summary(summary, Console(stderr=True), show=0)
    show(f"4/4  following the disc: {folder / 'report.html'}")
    model = load_model(run.model)
    clips = MotionBenchmark(
        level, "test", _NUM_TRACED, frames=model.config.input.frames, size=model.config.input.height
    )
    paths = path_error(model, clips)
    seconds = time.monotonic() - started
    facts = _Facts(recipe, run, results, summary, videos, paths, clips, seconds)
    return Demo(folder, _write_report(folder / "report.html", model, facts), summary, run, paths, seconds)


def _make_videos(folder: Path, level: str, count: int, seed: int) -> Path:
    """The folder of test videos; one that is there already is kept if it holds the same."""
    wanted = {"level": level, "count": count, "seed": seed}
    stamp = folder.with_name(f"{folder.name}.json")
    if not (folder.is_dir() and stamp.is_file() and json.loads(stamp.read_text()) == wanted):
        stamp.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        write_videos(folder, level, count, split="test", frames=_FRAMES, seed=seed)
        write_atomically(stamp, json.dumps(wanted))  # last: without it the folder counts as unfinished
    return folder


def _test(model: Path, videos: Path, output: Path, *, show_progress: bool) -> Results:
    """Score the videos as `motionformer evaluate` does."""
    loaded = load_model(model)
    source = FileVideos(open_dataset(videos), loaded.config.input, views=_VIEWS)
    return evaluate(loaded, source, name=str(model), batch_size=32, output=output, show_progress=show_progress)


def _level(recipe: Recipe) -> str:
    motion = parse_motion(recipe.data.val)
    if motion is None:
        raise RecipeError(f"the demo is about the motion benchmark: data.val is motion:LEVEL, not {recipe.data.val!r}.")
    return motion.level


@dataclass(frozen=True)
class _Facts:
    """What the report tells."""

    recipe: Recipe
    run: TrainingResult
    results: Results
    summary: dict[str, Any]
    videos: Path
    paths: PathErrors
    clips: MotionBenchmark
    seconds: float


def _write_report(file: Path, model: Motionformer, facts: _Facts) -> Path:
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
        validation=facts.run.intervals["top1"],
    )
    write_atomically(file, text)
    return file


def _show_examples(results: Results) -> list[dict[str, Any]]:
    """Some videos with their predictions: one per class, those that went wrong before the others."""
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


def _show_filmstrips(model: Motionformer, facts: _Facts) -> list[dict[str, str]]:
    """Where the patch on the disc looks, frame by frame, beside where the disc was; mean of all layers and heads."""
    shown = []
    every = (facts.clips[i] for i in range(len(facts.clips)))
    for clip in islice(filter(_stays_inside, every), _NUM_FILMSTRIPS):
        found = trace(model, clip, layer="mean", name=facts.recipe.name)
        shown.append({"title": facts.clips.classes[clip.label], "picture": _data_address(found.to_png(), "image/png")})
    return shown


def _stays_inside(clip: MotionClip) -> bool:
    """Whether the disc never crosses the border, where one part of it is far from the other."""
    steps = clip.path.diff(dim=0).abs()
    edge = clip.path / clip.frames.shape[1]
    return bool(steps.max() < clip.frames.shape[1] / 2 and edge.min() > _MARGIN and edge.max() < 1 - _MARGIN)


def _frames(path: str) -> Any:
    with open_video(path) as video:
        return video.read(range(video.metadata.num_frames)).numpy()


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
    axes.spines[["top", "right"]].set_visible(False)  # type: ignore[attr-defined]


def _svg(figure: Figure) -> str:
    """The drawing without the XML declaration, which does not belong inside a page."""
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
