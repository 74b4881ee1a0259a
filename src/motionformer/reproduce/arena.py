"""T5: Long Range Arena. At the scale of a CPU short ListOps, or a few hundred steps of whatever files are there."""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from motionformer.errors import RecipeError
from motionformer.lra import Run, Splits, find_task, train
from motionformer.lra.attends import COMPARED
from motionformer.lra.examples import Examples, spread
from motionformer.lra.listops import make_listops
from motionformer.lra.tasks import TASKS, Task
from motionformer.reproduce.experiments import Experiment
from motionformer.reproduce.jobs import no_finished_run
from motionformer.reproduce.outcome import Line, Outcome, new_outcome
from motionformer.reproduce.request import Request

FOLDERS = {
    "listops": "listops",
    "text": "aclImdb",
    "retrieval": "aan",
    "image": "cifar-10-batches-bin",
    "pathfinder": "pathfinder",
}
"""Where the files of each task lie below `--data`."""
PUBLISHED = {
    "listops": (36.69, 36.69, 36.90, 33.87),
    "text": (63.09, 63.22, 64.17, 64.42),
    "retrieval": (78.22, 78.98, 78.67, 78.36),
    "image": (31.47, 29.39, 36.16, 33.26),
    "pathfinder": (66.35, 66.55, 52.32, 66.41),
}
"""Accuracies of the paper's table 5, in the order of `COMPARED`; the improved Orthoformer is ours."""
READ: dict[str, int | float | str] = {"steps": 300, "batch": 32, "lr": 1e-3, "dev": 200, "test": 2000}
MADE: dict[str, int | float | str] = {**READ, "steps": 600, "shortest": 100, "longest": 200}
"""Settings at the scale of a CPU. ListOps is short there: as long as published, nothing is learnt within an hour."""


def compare_attention(experiment: Experiment, request: Request) -> Outcome:
    """Every way to compute attention on every task of the scale, with every seed."""
    if request.scale == "paper":
        return _original(experiment, request)
    options = request.options(**(MADE if request.data is None else READ))
    steps, batch, lr = options["steps"], options["batch"], options["lr"]
    lines = []
    for task, splits in _small(request, options).items():
        chosen = [name for name in COMPARED if request.rows in f"{task}, {name}"]
        for attend in chosen:
            runs = [
                Run(
                    task,
                    attend,
                    seed,
                    steps,
                    batch,
                    lr=lr,
                    evaluate_every=max(1, steps // 6),
                    dev_examples=options["dev"],
                )
                for seed in range(request.seeds)
            ]
            lines += _line(find_task(task), splits, runs, request)
        if any(line.group == task for line in lines):
            lines.append(Line("always the most frequent class", (100 * most_frequent(splits.test),), group=task))
    if not lines:
        raise no_finished_run(request)
    about = f"{steps} steps of {batch} sequences, rate {lr}, {options['test']} test sequences at most"
    if request.data is None:
        about = f"ListOps of {options['shortest']} to {options['longest']} tokens (published: 500 to 2,000), {about}"
    return new_outcome(experiment, request, about, lines, measure="accuracy, %")


def _small(request: Request, options: dict[str, Any]) -> dict[str, Splits]:
    """The tasks of this scale: ListOps, made, or those whose files are below `--data`; a part of the test split."""
    if request.data is None:
        lengths = (options["shortest"], options["longest"])
        try:
            found = {"listops": make_listops(lengths=lengths)}
        except ValueError as error:
            raise RecipeError(f"shortest and longest: {error}") from error
    else:
        folders = {name: request.data / folder for name, folder in FOLDERS.items()}
        found = {name: TASKS[name].read(folder) for name, folder in folders.items() if folder.is_dir()}
        if not found:
            raise RecipeError(f"none of the folders {', '.join(FOLDERS.values())} is in it.", request.data)
    request.choose(f"{task}, {attend}" for task in found for attend in COMPARED)
    return {name: replace(splits, test=spread(splits.test, options["test"])) for name, splits in found.items()}


def most_frequent(examples: Examples) -> float:
    """The share of the most frequent class: what guessing gets."""
    counts = Counter(examples[i].label for i in range(len(examples)))
    return max(counts.values()) / len(examples)


def _original(experiment: Experiment, request: Request) -> Outcome:
    chosen = set(request.choose(f"{task}, {name}" for task in TASKS for name in COMPARED))
    lines = []
    for task in TASKS.values():
        names = [name for name in COMPARED if f"{task.name}, {name}" in chosen]
        splits = _open(task, request.data) if names and request.train else None
        for name in names:
            lines += _line(task, splits, [Run(task.name, name, seed) for seed in range(request.seeds)], request)
    if not lines:
        raise no_finished_run(request)
    return new_outcome(experiment, request, "batch, steps and warm-up as published", lines, measure="accuracy, %")


def _open(task: Task, root: Path | None) -> Splits:
    folder = None if root is None else root / FOLDERS[task.name]
    if folder is not None and folder.exists():
        return task.read(folder)
    if task.make is None:
        raise RecipeError(f"{task.name} is not made here: put its files into {FOLDERS[task.name]} below --data.")
    return task.make(0)


def _line(task: Task, splits: Splits | None, runs: list[Run], request: Request) -> list[Line]:
    """One line of these runs: trained, or those that are finished; no line if none is."""
    results = []
    for run in runs:
        folder = request.out / "runs" / f"{task.name}-{run.attend}" / f"seed-{run.seed}"
        if splits is not None and request.train:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            result = train(task, splits, run, folder, device=device)
            results.append((result.test_accuracy, result.seconds))
            request.tell(f"{task.name}, {run.attend}, seed {run.seed}: {result.test_accuracy:.1%}")
        elif (folder / "result.json").is_file():
            results.append(_read_result(folder / "result.json", run.complete(task)))
    if not results:
        return []
    published = dict(zip(COMPARED, PUBLISHED[task.name], strict=False)).get(runs[0].attend)
    accuracies = tuple(100 * accuracy for accuracy, _ in results)
    seconds = mean(seconds for _, seconds in results)
    return [Line(runs[0].attend, accuracies, seconds, task.name, paper="" if published is None else f"{published:.2f}")]


def _read_result(file: Path, run: Run) -> tuple[float, float]:
    """Test accuracy and seconds of a finished run, which must be the one asked for."""
    stored = json.loads(file.read_text(encoding="utf-8"))
    differ = [
        f"{key} {stored['run'].get(key)}, asked for {value}"
        for key, value in asdict(run).items()
        if stored["run"].get(key) != value
    ]
    if differ:
        raise RecipeError(f"is of another run ({'; '.join(differ)}): give its settings, or another --out.", file)
    return stored["test_accuracy"], stored["seconds"]
