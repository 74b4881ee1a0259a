"""Training runs of a table: which there are, where each lies, and training them a few at a time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from motionformer.errors import RecipeError
from motionformer.evaluation.intervals import show_share
from motionformer.experiments.tables.at_once import at_once
from motionformer.experiments.tables.experiments import Experiment, Row
from motionformer.experiments.tables.own_videos import plan_row
from motionformer.experiments.tables.request import Request
from motionformer.training.finetune import write_lists
from motionformer.training.folder import refuse_other_recipe
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.run import train
from motionformer.training.shipped import find_recipe


@dataclass(frozen=True)
class Job:
    """One training run of an experiment: a row with a seed, on what is built in or on a folder of videos."""

    row: Row
    seed: int
    folder: Path
    changes: tuple[str, ...]
    videos: Path | None = None


def choose_rows(experiment: Experiment, request: Request) -> list[Row]:
    """The rows asked for; none is an error that says why."""
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
        Job(row, seed, run_folder(row, seed, request), request.changes, request.data)
        for seed in range(request.seeds)
        for row in rows
    ]


def run_folder(row: Row, seed: int, request: Request) -> Path:
    """Named after what is trained, not after the table: the same run serves several tables."""
    parts = [row.recipe, *(change.removeprefix("model.changes.") for change in row.changes)]
    if request.data is not None:
        parts = [request.data_name, *parts, *([] if row.x is None else [f"stride-{row.x:.0f}"])]
    return request.out / "runs" / "+".join(parts).replace("/", "-") / f"seed-{seed}"


def train_jobs(jobs: Sequence[Job], request: Request) -> None:
    """Train them here, or in several processes at the same time. The first error stops the rest."""
    distinct = list({job.folder: job for job in jobs}.values())
    done = at_once(partial(train_job, threads=request.threads), distinct, request.processes)
    for number, (job, (correct, clips)) in enumerate(done, 1):
        request.tell(f"{number} of {len(distinct)}: {job.row.label}, seed {job.seed}: {show_share(correct, clips)}")


def train_job(job: Job, threads: int) -> tuple[int, int]:
    """Train one row in this process; how many of its validation clips are right (verb and noun, where there are both),
    and how many there are."""
    torch.set_num_threads(threads)
    card = train(make_recipe(job, write=True), quiet=True).card
    clips = card["data"]["val"]["clips"]
    return round(kept_score(card["results"]) * clips), clips


def make_recipe(job: Job, *, write: bool = False) -> Recipe:
    """The recipe of a job; `write` its lists of videos, where they are the user's."""
    changes = [*job.changes, f"seed={job.seed}"]
    if job.videos is None:
        return load_recipe(find_recipe(job.row.recipe), [*job.row.changes, *changes, f"output={job.folder}"])
    planned = plan_row(job.row, job.videos, job.folder, changes)
    if write:
        write_lists(planned)
    return planned.recipe


def finished(jobs: Sequence[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
    """The jobs whose run is complete, with its card. A run of another recipe in a job's place is an error."""
    for job in jobs:
        card = job.folder / "card.json"
        if card.is_file():
            refuse_other_recipe(make_recipe(job))
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


def kept_score(results: dict[str, Any]) -> float:
    """Top-1 of a finished run's model: of actions, where there are verbs and nouns."""
    kept = results.get("kept", results["last"])
    return float(kept["action"] if "action" in kept else kept["top1"])
