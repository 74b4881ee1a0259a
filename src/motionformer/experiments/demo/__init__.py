"""The whole product in one call: data → training → multi-view test → trajectories → a page. Start reading here.

FOLDER/videos/    real mp4 files of the motion benchmark, never trained on
FOLDER/run/       the training run: recipe, metrics, checkpoints, card, model
FOLDER/results/   the test: scores of every view of every video, figures as JSON and csv
FOLDER/report.html

Each part is what its own command leaves behind, and a part that is complete is not made again.
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from motionformer.data import open_dataset
from motionformer.data.motion import MotionBenchmark, write_videos
from motionformer.data.source import parse_motion
from motionformer.errors import RecipeError
from motionformer.experiments.demo.report import Facts, write_report
from motionformer.inference import FileVideos, Results, evaluate, print_summary, write_reports
from motionformer.tracing import PathErrors, path_error
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.run import TrainingResult, train
from motionformer.weights import load_model

_RECIPE = "motion/easy"
_NUM_VIDEOS = 128
_FRAMES = 16  # twice a clip's: room for views at different times
_VIEWS = 3
_NUM_TRACED = 48  # clips over which paths are compared with the truth


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
    folder.mkdir(parents=True, exist_ok=True)
    say = _speaker(quiet)
    recipe = replace(load_recipe(_RECIPE, overrides), output=str(folder / "run"))
    level = _level(recipe)

    say(f"1/4  {num_videos} test videos: {folder / 'videos'}")
    videos = _make_videos(folder / "videos", level, num_videos, recipe.seed)
    say(f"2/4  training {recipe.name}: {folder / 'run'}")
    run = train(recipe, quiet=quiet)
    say(f"3/4  testing, {_VIEWS} views a video: {folder / 'results'}")
    results = _test(run.model, videos, folder / "results", show_progress=not quiet)
    summary = write_reports(results, folder / "results")
    if not quiet:
        print_summary(summary, Console(stderr=True), show=0)
    say(f"4/4  following the disc: {folder / 'report.html'}")
    model = load_model(run.model)
    clips = MotionBenchmark(
        level, "test", _NUM_TRACED, frames=model.config.input.frames, size=model.config.input.height
    )
    paths = path_error(model, clips)
    seconds = time.monotonic() - started
    facts = Facts(recipe, run, results, summary, videos, paths, clips, seconds)
    return Demo(folder, write_report(folder / "report.html", model, facts), summary, run, paths, seconds)


def _make_videos(folder: Path, level: str, count: int, seed: int) -> Path:
    """The folder of test videos; one that is there already is kept if it holds the same."""
    wanted = {"level": level, "count": count, "seed": seed}
    stamp = folder.with_name(f"{folder.name}.json")
    if not (folder.is_dir() and stamp.is_file() and json.loads(stamp.read_text()) == wanted):
        stamp.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        write_videos(folder, level, count, split="test", frames=_FRAMES, seed=seed)
        stamp.write_text(json.dumps(wanted))  # last: without it the folder counts as unfinished
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


def _speaker(quiet: bool) -> Callable[[str], None]:
    console = Console(stderr=True, quiet=quiet)
    return lambda line: console.print(line, style="bold", highlight=False, markup=False, soft_wrap=True)
