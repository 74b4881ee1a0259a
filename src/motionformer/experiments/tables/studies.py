"""START HERE: an experiment and a request become an outcome. What is more than a table of recipes is a study.

Here are T3m (memory), A3 (classes that gain), A4 (attention maps) and A5 (costs); T5 is `lra.py`, A6 `davis.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import torch

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import RecipeError
from motionformer.experiments.lra.model import COMPARED, encoder_macs
from motionformer.experiments.lra.model import PUBLISHED as ARENA_GMACS
from motionformer.experiments.tables import Experiment
from motionformer.experiments.tables.davis import follow_objects
from motionformer.experiments.tables.jobs import (
    Job,
    choose_rows,
    make_recipe,
    only_finished,
    plan_jobs,
    train_jobs,
    train_table,
)
from motionformer.experiments.tables.lra import compare_attention
from motionformer.experiments.tables.outcome import Line, Outcome, Request, file_stem, new_outcome
from motionformer.inference import Results, evaluate, open_source
from motionformer.inference.comparison import Comparison, compare
from motionformer.inference.metrics import show_share
from motionformer.models import Motionformer
from motionformer.models.costs import measure, paper_macs, training_step_peak
from motionformer.models.variants import VARIANTS
from motionformer.tracing import PathErrors, path_error
from motionformer.tracing import compare as compare_maps
from motionformer.training.model import build_config
from motionformer.training.recipe import load_recipe
from motionformer.weights import load_model

_MEMORY_ROWS = {
    "exact": ("base", 7.4),
    "Performer, 256 features": ("t3a-performer", 5.1),
    "Nyström, 128": ("t3a-nystrom", 3.8),
    "Orthoformer, 128": ("t3a-orthoformer", 3.6),
    "random prototypes, 128": ("t3b-random", 3.6),
    "segment means, 128": ("t3b-segments", 3.6),
    "Orthoformer, 64": ("t3c-64", 3.3),
    "Orthoformer, 16": ("t3c-16", 3.1),
    "Orthoformer, 128 of each frame": ("t3d-per-frame", 16.5),
}
"""Rows of table 3: the recipe of each, on Kinetics-400, and the paper's GB of CUDA memory."""
_EXACT = "exact"
_OF_EXACT, _BEYOND_WEIGHTS = "of exact", "GB beyond weights and gradients"


def _measure_memory(experiment: Experiment, request: Request) -> Outcome:
    """A training step of each model in a process of its own; what exact attention takes is always measured."""
    request.check_one_process()
    if request.data is not None or request.changes or request.scale == "paper":
        raise RecipeError("memory is measured with the models of the paper on one clip of noise: nothing can be given.")
    if not request.train:
        raise RecipeError("memory is measured anew each time: leave --collect out.")
    chosen = request.choose(_MEMORY_ROWS)
    bytes_of = {}
    for label in dict.fromkeys((_EXACT, *chosen)):
        bytes_of[label] = training_step_peak(build_config(load_recipe(f"k400/{_MEMORY_ROWS[label][0]}"), 400))
        request.tell(f"{label}: {bytes_of[label] / 1e6:,.0f} MB")
    ratios = [
        Line(
            label,
            (bytes_of[label] / bytes_of[_EXACT],),
            group=_OF_EXACT,
            paper=f"{_MEMORY_ROWS[label][1] / _MEMORY_ROWS[_EXACT][1]:.2f}",
        )
        for label in chosen
    ]
    sizes = [
        Line(label, (bytes_of[label] / 1e9,), group=_BEYOND_WEIGHTS, paper=f"{_MEMORY_ROWS[label][1]}")
        for label in chosen
    ]
    about = "peak of one step of one clip of 16 × 224², float32 on a CPU; the paper's GB are CUDA memory in all"
    return new_outcome(experiment, request, about, [*ratios, *sizes], measure="")


def _measure_gains(experiment: Experiment, request: Request) -> Outcome:
    """Train the two rows with every seed, score both on the same videos, and compare class by class."""
    if request.rows:
        raise RecipeError("a3 compares two rows, and needs both: leave --rows out.")
    joint, trajectory = choose_rows(experiment, request)
    jobs = plan_jobs((joint, trajectory), request)
    if request.train:
        train_jobs(jobs, request)
    pairs = [(jobs[2 * seed], jobs[2 * seed + 1]) for seed in range(request.seeds)]
    if not request.train:
        there = only_finished(jobs, request)
        pairs = [pair for pair in pairs if all(job in there for job in pair)]
        if not pairs:
            raise RecipeError(f"no seed of both {joint.label} and {trajectory.label} is finished in {request.out}.")
    compared = [compare(score(a), score(b)) for a, b in pairs]
    videos = compared[0].videos
    about = f"{videos} test videos per seed; trajectory {_show([c.b_top1 for c in compared], videos)} of all, joint "
    about += _show([c.a_top1 for c in compared], videos)
    if len(compared) == 1:
        low, high = (100 * bound for bound in compared[0].interval)
        about += f"; gain {low:+.1f} to {high:+.1f} points (95 % CI, paired)"
    return new_outcome(experiment, request, about, _by_class(compared), measure="gain in top-1, points")


def _show(shares: Sequence[float], videos: int) -> str:
    """An accuracy with the interval of its videos, or with its standard deviation over the seeds."""
    if len(shares) == 1:
        return show_share(round(shares[0] * videos), videos)
    return f"{mean(shares):.1%} ± {stdev(shares):.1%} (s.d. of {len(shares)} seeds)"


def score(job: Job) -> Results:
    """The job's model on the test clips of the benchmark, or on the videos that were held out; kept in its folder."""
    recipe = make_recipe(job)
    is_made = recipe.data.val.startswith("motion:")
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


_LEVEL = "easy"
_TRACED_CLIP = "motion:easy/5"  # the first whose disc never leaves the frame
_CLIPS = 128


def _measure_maps(experiment: Experiment, request: Request) -> Outcome:
    """Train the schemes, draw one clip with each, and measure the paths of the mean map over layers and heads."""
    if request.data is not None:
        raise RecipeError("where things go in your videos is not known: `motionformer trace VIDEO` draws their maps.")
    jobs = plan_jobs(choose_rows(experiment, request), request)
    if request.train:
        train_jobs(jobs, request)
    else:
        jobs = only_finished(jobs, request)
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
    picture = request.out / f"{file_stem(experiment.id, request.scale, '', request.rows)}-maps.png"
    models: dict[str, Path] = {}
    for job in jobs:
        models.setdefault(job.row.label, job.folder / "model")
    compare_maps(models, _TRACED_CLIP, layer="mean").save(picture)
    request.tell(f"{picture}: mean of layers and heads, the first seed")
    lines = [Line(label, tuple(values)) for label, values in found.items()]
    about = (
        f"how far from the disc the mean map of all layers and heads is strongest, or is on average;"
        f" {_CLIPS} test clips of {_LEVEL}, frames with a whole disc; frames in which that map has a peak and is not"
        f" near uniform: {', '.join(f'{label} {mean(shares):.0%}' for label, shares in peaked.items())}"
    )
    return new_outcome(
        experiment,
        request,
        about,
        [*lines, Line("a path that stands still", (errors.whole.stay,))],
        measure="path error, patches",
    )


def _errors(model: Motionformer) -> PathErrors:
    shape = model.config.input
    return path_error(
        model, MotionBenchmark(_LEVEL, "test", _CLIPS, frames=shape.frames, stride=shape.stride, size=shape.height)
    )


_PAPER_GMACS = {
    "joint-base": "180.6",
    "divided-base": "185.8",
    "motionformer-base": "369.5",
    "motionformer-hr": "958.8",
    "motionformer-l": "1185.2",
    "motionformer-h": "",
}
"""G multiply-adds of one view in the paper."""
_EQUATIONS = "G multiply-adds, the paper's equations"
_COMPUTED = "G multiply-adds, as computed here"
_STEP_MEMORY = "GB of a training step, one clip, float32"
_ENCODER = "ListOps encoder, 2,048 tokens: G multiply-adds"


def _count_costs(experiment: Experiment, request: Request) -> Outcome:
    """Multiply-adds twice, memory once, and the encoder of Long Range Arena."""
    request.check_one_process()
    if request.data is not None or request.changes:
        raise RecipeError("costs are counted: there is nothing to read and nothing to change.")
    chosen = request.choose(dict.fromkeys((*_PAPER_GMACS, *COMPARED)))
    names = [name for name in _PAPER_GMACS if name in chosen]
    found = {name: measure(VARIANTS[name]) for name in names}
    literal = [
        Line(name, (paper_macs(VARIANTS[name]) / 1e9,), group=_EQUATIONS, paper=_PAPER_GMACS[name]) for name in names
    ]
    computed = [
        Line(name, (cost.macs / 1e9,), group=_COMPUTED, paper=_PAPER_GMACS[name]) for name, cost in found.items()
    ]
    memory = [Line(name, (cost.training_total_bytes / 1e9,), group=_STEP_MEMORY) for name, cost in found.items()]
    arena = [
        Line(name, (encoder_macs(name) / 1e9,), group=_ENCODER, paper=str(ARENA_GMACS.get(name, "")))
        for name in COMPARED
        if name in chosen
    ]
    about = "counted by running the code on tensors without data; measured times and memory are in docs/benchmarks.md"
    return new_outcome(experiment, request, about, [*literal, *computed, *memory, *arena], measure="")


_STUDIES: dict[str, Callable[[Experiment, Request], Outcome]] = {
    "t3m": _measure_memory,
    "t5": compare_attention,
    "a3": _measure_gains,
    "a4": _measure_maps,
    "a5": _count_costs,
    "a6": follow_objects,
}


def run_experiment(experiment: Experiment, request: Request) -> Outcome:
    """Whatever makes the experiment: its own study, or training its rows. `threads` 0 is all."""
    study = _STUDIES.get(experiment.id, train_table)
    threads = request.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    return study(experiment, replace(request, threads=threads))
