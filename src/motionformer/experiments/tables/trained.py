"""Tables of recipes: every row trained with every seed."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from motionformer.experiments.tables.experiments import Experiment
from motionformer.experiments.tables.jobs import (
    Job,
    choose_rows,
    finished,
    kept_score,
    no_finished_run,
    plan_jobs,
    train_jobs,
)
from motionformer.experiments.tables.outcome import Line, Outcome, new_outcome
from motionformer.experiments.tables.request import Request


def train_table(experiment: Experiment, request: Request) -> Outcome:
    """Every row with every seed; a run that is finished is not repeated, so a killed table goes on where it stopped."""
    jobs = plan_jobs(choose_rows(experiment, request), request)
    if request.train:
        train_jobs(jobs, request)
    outcome = collect(experiment, jobs, request)
    if not outcome.lines:
        raise no_finished_run(request)
    return outcome


def collect(experiment: Experiment, jobs: Sequence[Job], request: Request) -> Outcome:
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
    scores = {job.seed: 100 * kept_score(card["results"]) for job, card in runs}
    seeds = tuple(sorted(scores))
    values = tuple(scores[seed] for seed in seeds)
    seconds, clips = mean(card["seconds"] for _, card in runs), runs[0][1]["data"]["val"]["clips"]
    return Line(label, values, seconds, row.group, row.x, seeds=seeds, videos=clips)
