"""Experiments that train the rows of a table: which runs there are, where each lies, training a few at a time, metrics;
then A3 (classes that gain) and A4 (attention maps), which ask more of the trained models.

With `--data` a row is trained as `motionformer finetune` would: the videos decide the clip and the head, the row
everything else. All rows and seeds share one split of the videos.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from motionformer.data.motion import MotionBenchmark
from motionformer.data.source import parse_motion
from motionformer.errors import RecipeError
from motionformer.experiments.tables import Experiment, Request, Row
from motionformer.experiments.tables.outcome import Line, Outcome
from motionformer.finetuning import FinetuneOptions, FinetunePlan, plan_finetune
from motionformer.finetuning.options import BASIS, config_changes
from motionformer.inference import Results, evaluate, open_source
from motionformer.inference.comparison import Comparison, compare
from motionformer.inference.metrics import show_share
from motionformer.logging import show_count
from motionformer.models import Motionformer
from motionformer.models.variants import VARIANTS
from motionformer.tracing import PathErrors, path_error
from motionformer.tracing import compare as compare_maps
from motionformer.training.model import build_config
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.run import train
from motionformer.training.run_folder import RunFolder
from motionformer.weights import load_model


@dataclass(frozen=True)
class _Job:
    """One training run of an experiment: a row with a seed, on what is built in or on a folder of videos."""

    row: Row
    seed: int
    folder: Path
    changes: tuple[str, ...]
    videos: Path | None = None


def train_table(experiment: Experiment, request: Request) -> Outcome:
    """Every row with every seed; a run that is finished is not repeated, so a killed table resumes."""
    jobs = _plan_jobs(_choose_rows(experiment, request), request)
    if request.train:
        _train_jobs(jobs, request)
    outcome = _collect(experiment, jobs, request)
    if not outcome.lines:
        raise request.no_finished_run()
    return outcome


def measure_gains(experiment: Experiment, request: Request) -> Outcome:
    """Train the two rows with every seed, score both on the same videos, and compare class by class."""
    if request.rows:
        raise RecipeError("a3 compares two rows, and needs both: leave --rows out.")
    joint, trajectory = _choose_rows(experiment, request)
    jobs = _plan_jobs((joint, trajectory), request)
    if request.train:
        _train_jobs(jobs, request)
    pairs = [(jobs[2 * seed], jobs[2 * seed + 1]) for seed in range(request.seeds)]
    if not request.train:
        there = _only_finished(jobs, request)
        pairs = [pair for pair in pairs if all(job in there for job in pair)]
        if not pairs:
            raise RecipeError(f"no seed of both {joint.label} and {trajectory.label} is finished in {request.out}.")
    compared = [compare(_score(a), _score(b)) for a, b in pairs]
    videos = compared[0].videos
    about = f"{videos} test videos per seed; trajectory {_show([c.b_top1 for c in compared], videos)} of all, joint "
    about += _show([c.a_top1 for c in compared], videos)
    if len(compared) == 1:
        low, high = (100 * bound for bound in compared[0].interval)
        about += f"; gain {low:+.1f} to {high:+.1f} points (95 % CI, paired)"
    return Outcome.of(experiment, request, about, _by_class(compared), measure="gain in top-1, points")


def measure_maps(experiment: Experiment, request: Request) -> Outcome:
    """Train the schemes, draw one clip with each, and measure the paths of the mean map over layers and heads."""
    if request.data is not None:
        raise RecipeError("where things go in your videos is not known: `motionformer trace VIDEO` draws their maps.")
    jobs = _plan_jobs(_choose_rows(experiment, request), request)
    if request.train:
        _train_jobs(jobs, request)
    else:
        jobs = _only_finished(jobs, request)
    found: dict[str, list[float]] = {}
    peaked: dict[str, list[float]] = {}
    for job in jobs:
        model = load_model(job.folder / "model")
        errors = _errors(model)
        torch.manual_seed(job.seed)
        before = _errors(Motionformer(model.config))
        found.setdefault(job.row.label, []).append(errors.peak_whole.overall)
        found.setdefault(f"{job.row.label}, untrained", []).append(before.peak_whole.overall)
        found.setdefault(f"{job.row.label}, mean of the map", []).append(errors.whole.overall)
        peaked.setdefault(job.row.label, []).append(errors.peaked)
        peaked.setdefault("untrained", []).append(before.peaked)
        request.tell(
            f"{job.row.label}, seed {job.seed}: {errors.peak_whole.overall:.2f} patches where it looks most"
            f" ({before.peak_whole.overall:.2f} untrained), {errors.whole.overall:.2f} on average;"
            f" the map has a peak in {errors.peaked:.0%} of the frames ({before.peaked:.0%} untrained)"
        )
    models: dict[str, Path] = {}
    for job in jobs:
        models.setdefault(job.row.label, job.folder / "model")
    lines = [Line(label, tuple(values)) for label, values in found.items()]
    about = (
        f"how far from the disc the mean map of all layers and heads is strongest, or is on average;"
        f" {_CLIPS} test clips of {_LEVEL}, frames with a whole disc; frames in which that map has a peak and is not"
        f" near uniform: {', '.join(f'{label} {mean(shares):.0%}' for label, shares in peaked.items())}"
    )
    lines.append(Line("a path that stands still", (errors.whole.stay,)))
    outcome = Outcome.of(experiment, request, about, lines, measure="path error, patches")
    picture = request.out / f"{outcome.stem}-maps.png"
    compare_maps(models, _TRACED_CLIP, layer="mean").save(picture)
    request.tell(f"{picture}: mean of layers and heads, the first seed")
    return outcome


def _collect(experiment: Experiment, jobs: Sequence[_Job], request: Request) -> Outcome:
    """The table of the jobs that are finished; rows without a finished run are left out."""
    found: dict[str, list[tuple[_Job, dict[str, Any]]]] = {job.row.label: [] for job in jobs}  # in the table's order
    for job, card in _finished(jobs):
        found[job.row.label].append((job, card))
    cards = [card for runs in found.values() for _, card in runs]
    steps = max((card["plan"]["total_steps"] for card in cards), default=0)
    clips = max((card["data"]["val"]["clips"] for card in cards), default=0)
    lines = tuple(_line(label, runs) for label, runs in found.items() if runs)
    return Outcome.of(experiment, request, f"{show_count(steps, 'step')}, {show_count(clips, 'held-out clip')}", lines)


def _line(label: str, runs: list[tuple[_Job, dict[str, Any]]]) -> Line:
    row = runs[0][0].row
    scores = {job.seed: 100 * _kept_score(card["results"]) for job, card in runs}
    seeds = tuple(sorted(scores))
    values = tuple(scores[seed] for seed in seeds)
    seconds, clips = mean(card["seconds"] for _, card in runs), runs[0][1]["data"]["val"]["clips"]
    return Line(label, values, seconds, row.group, row.x, seeds=seeds, videos=clips)


def _choose_rows(experiment: Experiment, request: Request) -> list[Row]:
    """The rows asked for; none is an error with the reason."""
    there = experiment.cpu if request.scale == "cpu" else experiment.paper
    chosen = [row for row in there if request.rows in row.label]
    if chosen:
        return chosen
    if there:
        raise RecipeError(
            f"{experiment.id} has no row with {request.rows!r} in its name; it has {', '.join(r.label for r in there)}."
        )
    other = "cpu" if request.scale == "paper" else "paper"
    raise RecipeError(
        f"{experiment.id} has no rows at scale {request.scale}; it needs {experiment.needs}: --scale {other}."
    )


def _plan_jobs(rows: Sequence[Row], request: Request) -> list[_Job]:
    """Every row with every seed, seed by seed: an interrupted table has whole columns. Equal runs share a folder."""
    if request.scale == "paper" and request.data is not None:
        raise RecipeError(
            f"--data {request.data} goes with --scale cpu, where the clip and the model are made for your videos. The"
            " published recipes of --scale paper take data.train=… data.val=… (and data.root=…), with --rows to choose"
            " those of one data set."
        )
    return [
        _Job(row, seed, _run_folder(row, seed, request), request.changes, request.data)
        for seed in range(request.seeds)
        for row in rows
    ]


def _run_folder(row: Row, seed: int, request: Request) -> Path:
    """Named after what is trained, not after the table: the same run serves several tables."""
    parts = [row.recipe, *(change.removeprefix("model.changes.") for change in row.changes)]
    if request.data is not None:
        parts = [request.data_name, *parts, *([] if row.x is None else [f"stride-{row.x:.0f}"])]
    return request.out / "runs" / "+".join(parts).replace("/", "-") / f"seed-{seed}"


def _train_jobs(jobs: Sequence[_Job], request: Request) -> None:
    """Train them here, or in several processes at the same time. The first error stops the rest."""
    distinct = list({job.folder: job for job in jobs}.values())
    done = request.run(partial(_train_job, threads=request.threads), distinct)
    for number, (job, (correct, clips)) in enumerate(done, 1):
        request.tell(f"{number} of {len(distinct)}: {job.row.label}, seed {job.seed}: {show_share(correct, clips)}")


def _train_job(job: _Job, threads: int) -> tuple[int, int]:
    """Train one row in this process; how many of its validation clips are right (verb and noun, where there are both),
    and how many there are."""
    torch.set_num_threads(threads)
    card = train(_make_recipe(job, write=True), quiet=True).card
    clips = card["data"]["val"]["clips"]
    return round(_kept_score(card["results"]) * clips), clips


def _make_recipe(job: _Job, *, write: bool = False) -> Recipe:
    """The recipe of a job; `write` its lists of videos, where they are the user's."""
    changes = [*job.changes, f"seed={job.seed}"]
    if job.videos is None:
        return load_recipe(job.row.recipe, [*job.row.changes, *changes, f"output={job.folder}"])
    planned = _plan_row(job.row, job.videos, job.folder, changes)
    if write:
        planned.write_lists()
    return planned.recipe


def _finished(jobs: Sequence[_Job]) -> Iterator[tuple[_Job, dict[str, Any]]]:
    """The jobs whose run is complete, with its card. A run of another recipe in a job's folder is an error."""
    for job in jobs:
        if (card := RunFolder(job.folder).read_card()) is not None:
            RunFolder(job.folder).check_same_recipe(_make_recipe(job))
            yield job, card


def _only_finished(jobs: Sequence[_Job], request: Request) -> list[_Job]:
    """The jobs whose run is complete; none is an error."""
    found = [job for job, _ in _finished(jobs)]
    if not found:
        raise request.no_finished_run()
    return found


def _kept_score(results: dict[str, Any]) -> float:
    """Top-1 of a finished run's model: of actions, where there are verbs and nouns."""
    kept = results.get("kept", results["last"])
    return float(kept["action"] if "action" in kept else kept["top1"])


_LEVEL = "easy"
_TRACED_CLIP = "motion:easy/5"  # the first whose disc never leaves the frame
_CLIPS = 128
_EPOCHS = 10
"""A quarter of what `finetune` takes from random weights: a table is many runs."""
_OF_THE_ROW = ("attention", "kernel", "time", "tubelet", "positions", "project_values")
"""What a row decides about the model."""


def _plan_row(row: Row, videos: Path, folder: Path, changes: Sequence[str]) -> FinetunePlan:
    """The training of a row on these videos, in this folder; `changes` come last."""
    # tables that share a run name it alike
    options = FinetuneOptions(epochs=_EPOCHS, name=folder.parent.name, output=str(folder))
    return plan_finetune(videos, options, [*_model_of(row), *changes])


def _model_of(row: Row) -> Iterator[str]:
    """Keys of a recipe that make the model of the row out of the one that `finetune` chooses."""
    config = build_config(load_recipe(row.recipe, row.changes), 1)
    chosen = {key: value for key, value in config_changes(config).items() if key in _OF_THE_ROW}
    yield from _flat("model.changes", chosen)
    if config.input.frames != VARIANTS[BASIS].input.frames:
        yield f"model.changes.input.frames={config.input.frames}"
    if row.x is not None:  # a point of the figure about strides; elsewhere a clip is the whole video
        yield "model.changes.input.sampling=stride"
        yield f"model.changes.input.stride={row.x:.0f}"


def _flat(key: str, values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{key}.{name}", value)
        else:
            yield f"{key}.{name}={value}"


def _show(shares: Sequence[float], videos: int) -> str:
    """An accuracy with the interval of its videos, or with its standard deviation over the seeds."""
    if len(shares) == 1:
        return show_share(round(shares[0] * videos), videos)
    return f"{mean(shares):.1%} ± {stdev(shares):.1%} (s.d. of {len(shares)} seeds)"


def _score(job: _Job) -> Results:
    """The job's model on the test clips of the benchmark, or on the videos that were held out; kept in its folder."""
    recipe = _make_recipe(job)
    is_made = parse_motion(recipe.data.val) is not None
    model = load_model(job.folder / "model")
    source = open_source(
        f"{recipe.data.val}:{recipe.data.val_clips}" if is_made else recipe.data.val,
        model.config.input,
        split="test" if is_made else None,
        class_names=model.config.labels,
    )
    return evaluate(
        model, source, name=job.row.label, batch_size=32, output=job.folder / "results", show_progress=False
    )


def _by_class(compared: list[Comparison]) -> list[Line]:
    """A line per class with the gain of every seed; largest mean gain first."""
    gains: dict[str, list[float]] = {}
    for comparison in compared:
        for change in comparison.classes:
            gains.setdefault(change.name, []).append(100 * change.gain)
    lines = [Line("all", tuple(100 * (one.b_top1 - one.a_top1) for one in compared))]
    return lines + sorted((Line(name, tuple(each)) for name, each in gains.items()), key=lambda line: -line.mean)


def _errors(model: Motionformer) -> PathErrors:
    shape = model.config.input
    return path_error(
        model, MotionBenchmark(_LEVEL, "test", _CLIPS, frames=shape.frames, stride=shape.stride, size=shape.height)
    )
