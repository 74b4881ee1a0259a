"""Tables of recipes: which training runs there are, where each lies, training a few at a time, and their metrics.

With `--data` a row is trained as `motionformer finetune` would: the videos decide the clip and the head, the row
everything else. All rows and seeds share one split of the videos.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import torch

from motionformer.errors import RecipeError
from motionformer.experiments.tables import Experiment, Row
from motionformer.experiments.tables.outcome import Line, Outcome, Request, new_outcome
from motionformer.finetuning import FinetuneOptions, FinetunePlan, plan_finetune
from motionformer.finetuning.options import BASIS, config_changes
from motionformer.inference.metrics import show_share
from motionformer.models.variants import VARIANTS
from motionformer.training.model import build_config
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.run import train
from motionformer.training.run_folder import check_same_recipe


@dataclass(frozen=True)
class Job:
    """One training run of an experiment: a row with a seed, on what is built in or on a folder of videos."""

    row: Row
    seed: int
    folder: Path
    changes: tuple[str, ...]
    videos: Path | None = None


def train_table(experiment: Experiment, request: Request) -> Outcome:
    """Every row with every seed; a run that is finished is not repeated, so a killed table resumes."""
    jobs = plan_jobs(choose_rows(experiment, request), request)
    if request.train:
        train_jobs(jobs, request)
    outcome = _collect(experiment, jobs, request)
    if not outcome.lines:
        raise no_finished_run(request)
    return outcome


def _collect(experiment: Experiment, jobs: Sequence[Job], request: Request) -> Outcome:
    """The table of the jobs that are finished; rows without a finished run are left out."""
    found: dict[str, list[tuple[Job, dict[str, Any]]]] = {job.row.label: [] for job in jobs}  # in the table's order
    for job, card in finished(jobs):
        found[job.row.label].append((job, card))
    cards = [card for runs in found.values() for _, card in runs]
    steps = max((card["plan"]["total_steps"] for card in cards), default=0)
    clips = max((card["data"]["val"]["clips"] for card in cards), default=0)
    lines = tuple(_line(label, runs) for label, runs in found.items() if runs)
    return new_outcome(experiment, request, f"{steps} steps, {clips} held-out clips", lines)


def _line(label: str, runs: list[tuple[Job, dict[str, Any]]]) -> Line:
    row = runs[0][0].row
    scores = {job.seed: 100 * _kept_score(card["results"]) for job, card in runs}
    seeds = tuple(sorted(scores))
    values = tuple(scores[seed] for seed in seeds)
    seconds, clips = mean(card["seconds"] for _, card in runs), runs[0][1]["data"]["val"]["clips"]
    return Line(label, values, seconds, row.group, row.x, seeds=seeds, videos=clips)


def choose_rows(experiment: Experiment, request: Request) -> list[Row]:
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


def plan_jobs(rows: Sequence[Row], request: Request) -> list[Job]:
    """Every row with every seed, seed by seed: an interrupted table has whole columns. Equal runs share a folder."""
    if request.scale == "paper" and request.data is not None:
        raise RecipeError(
            f"--data {request.data} goes with --scale cpu, where the clip and the model are made for your videos. The"
            " published recipes of --scale paper take data.train=… data.val=… (and data.root=…), with --rows to choose"
            " those of one data set."
        )
    return [
        Job(row, seed, _run_folder(row, seed, request), request.changes, request.data)
        for seed in range(request.seeds)
        for row in rows
    ]


def _run_folder(row: Row, seed: int, request: Request) -> Path:
    """Named after what is trained, not after the table: the same run serves several tables."""
    parts = [row.recipe, *(change.removeprefix("model.changes.") for change in row.changes)]
    if request.data is not None:
        parts = [request.data_name, *parts, *([] if row.x is None else [f"stride-{row.x:.0f}"])]
    return request.out / "runs" / "+".join(parts).replace("/", "-") / f"seed-{seed}"


def train_jobs(jobs: Sequence[Job], request: Request) -> None:
    """Train them here, or in several processes at the same time. The first error stops the rest."""
    distinct = list({job.folder: job for job in jobs}.values())
    done = run_parallel(partial(_train_job, threads=request.threads), distinct, request.processes)
    for number, (job, (correct, clips)) in enumerate(done, 1):
        request.tell(f"{number} of {len(distinct)}: {job.row.label}, seed {job.seed}: {show_share(correct, clips)}")


def _train_job(job: Job, threads: int) -> tuple[int, int]:
    """Train one row in this process; how many of its validation clips are right (verb and noun, where there are both),
    and how many there are."""
    torch.set_num_threads(threads)
    card = train(make_recipe(job, write=True), quiet=True).card
    clips = card["data"]["val"]["clips"]
    return round(_kept_score(card["results"]) * clips), clips


def make_recipe(job: Job, *, write: bool = False) -> Recipe:
    """The recipe of a job; `write` its lists of videos, where they are the user's."""
    changes = [*job.changes, f"seed={job.seed}"]
    if job.videos is None:
        return load_recipe(job.row.recipe, [*job.row.changes, *changes, f"output={job.folder}"])
    planned = _plan_row(job.row, job.videos, job.folder, changes)
    if write:
        planned.write_lists()
    return planned.recipe


def finished(jobs: Sequence[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
    """The jobs whose run is complete, with its card. A run of another recipe in a job's folder is an error."""
    for job in jobs:
        card = job.folder / "card.json"
        if card.is_file():
            check_same_recipe(make_recipe(job))
            yield job, json.loads(card.read_text(encoding="utf-8"))


def only_finished(jobs: Sequence[Job], request: Request) -> list[Job]:
    """The jobs whose run is complete; none is an error."""
    found = [job for job, _ in finished(jobs)]
    if not found:
        raise no_finished_run(request)
    return found


def no_finished_run(request: Request) -> RecipeError:
    """The error of collecting what is not there."""
    return RecipeError(f"no finished run in {request.out / 'runs'}: without --collect they are trained.")


def _kept_score(results: dict[str, Any]) -> float:
    """Top-1 of a finished run's model: of actions, where there are verbs and nouns."""
    kept = results.get("kept", results["last"])
    return float(kept["action"] if "action" in kept else kept["top1"])


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


_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def run_parallel(do: Callable[[_Item], _Made], jobs: Sequence[_Item], processes: int) -> Iterator[tuple[_Item, _Made]]:
    """Each job with what it gave, as they end; `do` and the jobs must be picklable. The first error stops the rest."""
    if processes == 1:
        yield from ((job, do(job)) for job in jobs)
        return
    context = get_context("spawn")  # a fork of a process with threads can hang
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running = {pool.submit(do, job): job for job in jobs}
        try:
            yield from ((running[done], done.result()) for done in as_completed(running))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
