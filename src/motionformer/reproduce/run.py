"""Train the rows of an experiment, a few at a time, each in a process and a folder of its own.

A row that is finished is not trained again, so a killed experiment goes on where it stopped.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from motionformer.reproduce.experiments import Row


@dataclass(frozen=True)
class Job:
    """One training run of an experiment."""

    row: Row
    seed: int
    folder: Path
    changes: tuple[str, ...]


def plan_jobs(rows: Sequence[Row], seeds: Sequence[int], folder: Path, changes: Sequence[str]) -> list[Job]:
    """Every row with every seed, seed by seed: an interrupted table has whole columns. Equal runs share a folder."""
    return [
        Job(row, seed, run_folder(folder, row, seed), (*row.changes, *changes, f"seed={seed}"))
        for seed in seeds
        for row in rows
    ]


def run_folder(folder: Path, row: Row, seed: int) -> Path:
    """Named after what is trained, not after the table: the same run serves several tables."""
    parts = [row.recipe, *(change.removeprefix("model.changes.") for change in row.changes)]
    return folder / "runs" / "+".join(parts).replace("/", "-") / f"seed-{seed}"


def run_experiment(
    jobs: Sequence[Job], *, processes: int, threads: int, tell: Callable[[Job, float], None]
) -> list[Path]:
    """Train all jobs; `tell` hears of each as it ends, with its top-1. The first error stops the rest."""
    distinct = list({job.folder: job for job in jobs}.values())
    context = get_context("spawn")  # a fork of a process with threads can hang
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running = {pool.submit(train_job, job, threads): job for job in distinct}
        try:
            for done in as_completed(running):
                tell(running[done], done.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [job.folder for job in jobs]


def train_job(job: Job, threads: int) -> float:
    """Train one row in this process; its last top-1 (of actions, where there are verbs and nouns)."""
    import torch

    from motionformer.training.recipe import load_recipe
    from motionformer.training.run import train
    from motionformer.training.shipped import find_recipe

    torch.set_num_threads(threads)
    recipe = load_recipe(find_recipe(job.row.recipe), [*job.changes, f"output={job.folder}"])
    last = train(recipe, quiet=True).last
    return last["action"] if "action" in last else last["top1"]


def finished(jobs: Sequence[Job]) -> Iterator[tuple[Job, Path]]:
    """The jobs whose run is complete, with its card."""
    for job in jobs:
        card = job.folder / "card.json"
        if card.is_file():
            yield job, card
