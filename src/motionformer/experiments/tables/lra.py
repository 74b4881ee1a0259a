"""T5: Long Range Arena. At the scale of a CPU short ListOps, or a few hundred steps of whatever files are there."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from motionformer.errors import RecipeError
from motionformer.experiments.lra import COMPARED, TASKS, Result, Run, Splits, Task, train
from motionformer.experiments.lra.examples import Examples, fingerprint, spread
from motionformer.experiments.lra.listops import make_listops
from motionformer.experiments.tables import Experiment, Request
from motionformer.experiments.tables.outcome import Line, Outcome
from motionformer.inference.metrics import show_share

_FOLDERS = {
    "listops": "listops",
    "text": "aclImdb",
    "retrieval": "aan",
    "image": "cifar-10-batches-bin",
    "pathfinder": "pathfinder",
}
"""Where the files of each task lie below `--data`."""
_PUBLISHED = {
    "listops": (36.69, 36.69, 36.90, 33.87),
    "text": (63.09, 63.22, 64.17, 64.42),
    "retrieval": (78.22, 78.98, 78.67, 78.36),
    "image": (31.47, 29.39, 36.16, 33.26),
    "pathfinder": (66.35, 66.55, 52.32, 66.41),
}
"""Accuracies of the paper's table 5, in the order of `COMPARED`; the improved Orthoformer is ours."""
_READ: dict[str, int | float | str] = {"steps": 300, "batch": 32, "lr": 1e-3, "dev": 200, "test": 2000}
_MADE: dict[str, int | float | str] = {**_READ, "steps": 600, "shortest": 100, "longest": 200}
"""Settings at the scale of a CPU. ListOps is short there: as long as published, nothing is learnt within an hour."""


_Found = dict[tuple[str, str, int], tuple[float, float]]
"""Task, attention and seed → test accuracy and seconds."""


@dataclass(frozen=True)
class _Trial:
    """A task with its data, and how it is trained with each attention."""

    task: Task
    splits: Splits
    origin: str  # of the data: a folder, or that they are made
    settings: dict[str, Any]
    folder: str  # where the runs of an attention lie, before its name

    def jobs(self, kernel: str, request: Request) -> list["_Job"]:
        """One with each seed."""
        folder = request.out / "runs" / f"{self.folder}-{kernel}"
        runs = [Run(self.task.name, kernel, seed, **self.settings) for seed in range(request.seeds)]
        return [_Job(self, run, folder / f"seed-{run.seed}", request.threads, request.tell) for run in runs]

    def __str__(self) -> str:
        train, test = len(self.splits.train), len(self.splits.test)
        return f"{self.task.name} ({self.origin}): {train:,} training and {test:,} test sequences"


@dataclass(frozen=True)
class _Job:
    """One run of a trial, and who hears of it."""

    trial: _Trial
    run: Run
    folder: Path
    threads: int
    tell: Callable[[str], object]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.run.task, self.run.kernel, self.run.seed

    def __str__(self) -> str:
        return "{}, {}, seed {}".format(*self.key)

    def __call__(self, step: int, row: dict[str, float | int]) -> None:
        """Say how the run stands at each evaluation."""
        if "dev_accuracy" in row:
            total = min(len(self.trial.splits.dev), self.run.dev_examples or len(self.trial.splits.dev))
            right = show_share(round(row["dev_accuracy"] * total), total)
            self.tell(f"{self}: step {step}, loss {row['loss']:.3f}, {right} of development")


def compare_attention(experiment: Experiment, request: Request) -> Outcome:
    """Every way to compute attention on every task of the scale, with every seed; all data are opened before."""
    is_small = request.scale == "cpu"
    trials = _small(request) if is_small else _original(request)
    asked = [
        job
        for trial in trials
        for kernel in COMPARED
        if request.rows in f"{trial.task.name}, {kernel}"
        for job in trial.jobs(kernel, request)
    ]
    found = _train_all(asked, request) if request.train else _finished(asked)
    lines = []
    for trial in trials:
        name = trial.task.name
        for kernel in COMPARED:
            by_seed = {seed: metrics for (task, way, seed), metrics in found.items() if (task, way) == (name, kernel)}
            lines += _line(by_seed, name, kernel, len(trial.splits.test))
        if is_small and any(line.group == name for line in lines):
            lines.append(Line("always the most frequent class", (100 * _most_frequent(trial.splits.test),), group=name))
    if not lines:
        raise request.no_finished_run()
    settings = "batch, steps and warm-up as published"
    if is_small:
        settings = "{steps} steps of {batch} sequences, rate {lr}".format(**trials[0].settings)
    about = "; ".join((*map(str, trials), settings))
    return Outcome.of(experiment, request, about, lines, measure="accuracy, %")


def _most_frequent(examples: Examples) -> float:
    """The share of the most frequent class: the chance level."""
    counts = Counter(examples[i].label for i in range(len(examples)))
    return max(counts.values()) / len(examples)


def _small(request: Request) -> list[_Trial]:
    """ListOps, made short, or the tasks whose files are below `--data`; a part of their test splits."""
    options = request.options(**(_MADE if request.data is None else _READ))
    steps = options["steps"]
    settings = {
        **{key: options[key] for key in ("steps", "batch", "lr")},
        "evaluate_every": max(1, steps // 6),
        "dev_examples": options["dev"],
    }
    found = []
    if request.data is None:
        lengths = (options["shortest"], options["longest"])
        try:
            splits = make_listops(lengths=lengths)
        except ValueError as error:
            raise RecipeError(f"shortest and longest: {error}") from error
        request.choose(f"listops, {kernel}" for kernel in COMPARED)
        origin = f"made, {lengths[0]} to {lengths[1]} tokens where the paper has 500 to 2,000"
        found.append(_Trial(TASKS["listops"], splits, origin, settings, f"listops-{lengths[0]}-{lengths[1]}"))
    else:
        there = {name: request.data / folder for name, folder in _FOLDERS.items() if (request.data / folder).is_dir()}
        if not there:
            raise RecipeError(f"none of the folders {', '.join(_FOLDERS.values())} is in it.", request.data)
        for name in _chosen_tasks(request, there):
            splits = TASKS[name].read(there[name])
            found.append(_Trial(TASKS[name], splits, there[name].name, settings, f"{request.data_name}-{name}"))
    return [replace(one, splits=replace(one.splits, test=spread(one.splits.test, options["test"]))) for one in found]


def _original(request: Request) -> list[_Trial]:
    if request.changes:
        raise RecipeError("the original has its published settings; `motionformer lra train TASK` takes others.")
    return [_published(TASKS[name], request.data) for name in _chosen_tasks(request, TASKS)]


def _chosen_tasks(request: Request, names: Iterable[str]) -> list[str]:
    """The tasks of which a row is asked for."""
    rows = request.choose(f"{name}, {kernel}" for name in names for kernel in COMPARED)
    return list(dict.fromkeys(row.partition(",")[0] for row in rows))


def _published(task: Task, root: Path | None) -> _Trial:
    folder = None if root is None else root / _FOLDERS[task.name]
    if folder is not None and folder.exists():
        return _Trial(task, task.read(folder), folder.name, {}, task.name)
    if task.make is None:
        raise RecipeError(f"{task.name} is not made here: put its files into {_FOLDERS[task.name]} below --data.")
    return _Trial(task, task.make(0), "made", {}, task.name)


def _train_all(jobs: Sequence[_Job], request: Request) -> _Found:
    """Train what is not finished, some at the same time."""
    results: _Found = {}
    for job, result in request.run(_train, jobs):
        examples = len(job.trial.splits.test)
        request.tell(f"{job}: {show_share(round(result.test_accuracy * examples), examples)} of test")
        results[job.key] = result.test_accuracy, result.seconds
    return results


def _train(job: _Job) -> Result:
    torch.set_num_threads(job.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return train(job.trial.task, job.trial.splits, job.run, job.folder, device=device, report=job)


def _finished(jobs: Sequence[_Job]) -> _Found:
    """What lies there of these runs."""
    results: _Found = {}
    for job in jobs:
        if (job.folder / "result.json").is_file():
            asked = {**asdict(job.run.complete(job.trial.task)), **fingerprint(job.trial.splits)}
            results[job.key] = _read_result(job.folder / "result.json", asked)
    return results


def _line(by_seed: dict[int, tuple[float, float]], name: str, kernel: str, examples: int) -> list[Line]:
    """One line of the runs with every seed; none if there is no run."""
    if not by_seed:
        return []
    published = dict(zip(COMPARED, _PUBLISHED[name], strict=False)).get(kernel)
    seeds = tuple(sorted(by_seed))
    accuracies = tuple(100 * by_seed[seed][0] for seed in seeds)
    seconds = mean(seconds for _, seconds in by_seed.values())
    paper = "" if published is None else f"{published:.2f}"
    return [Line(kernel, accuracies, seconds, name, paper=paper, seeds=seeds, videos=examples)]


def _read_result(file: Path, asked: dict[str, object]) -> tuple[float, float]:
    """Test accuracy and seconds of a finished run, which must be the one asked for, on the data asked for."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        there, metrics = {**stored["run"], **stored["data"]}, (stored["test_accuracy"], stored["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise RecipeError("is no result of `motionformer lra train`, or a damaged one.", file) from error
    differ = [f"{key} {there.get(key)}, asked for {value}" for key, value in asked.items() if there.get(key) != value]
    if differ:
        raise RecipeError(f"is of another run ({'; '.join(differ)}): give its settings, or another --out.", file)
    return metrics
