"""START HERE: an experiment and a request become an outcome. What is more than a table of recipes is a study.

Here are T3m (memory) and A5 (costs); A3 and A4 are in `jobs.py`, T5 is `lra.py`, A6 `davis.py`.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from motionformer.errors import RecipeError
from motionformer.experiments.lra.model import COMPARED, encoder_macs
from motionformer.experiments.lra.model import PUBLISHED as ARENA_GMACS
from motionformer.experiments.tables import Experiment, Request
from motionformer.experiments.tables.davis import follow_objects
from motionformer.experiments.tables.jobs import measure_gains, measure_maps, train_table
from motionformer.experiments.tables.lra import compare_attention
from motionformer.experiments.tables.outcome import Line, Outcome
from motionformer.models.costs import measure, paper_macs, training_step_peak
from motionformer.models.variants import VARIANTS
from motionformer.training.model import build_config
from motionformer.training.recipe import load_recipe

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
    return Outcome.of(experiment, request, about, [*ratios, *sizes], measure="")


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
    return Outcome.of(experiment, request, about, [*literal, *computed, *memory, *arena], measure="")


_STUDIES: dict[str, Callable[[Experiment, Request], Outcome]] = {
    "t3m": _measure_memory,
    "t5": compare_attention,
    "a3": measure_gains,
    "a4": measure_maps,
    "a5": _count_costs,
    "a6": follow_objects,
}


def run_experiment(experiment: Experiment, request: Request) -> Outcome:
    """Whatever makes the experiment: its own study, or training its rows. `threads` 0 is all."""
    study = _STUDIES.get(experiment.id, train_table)
    threads = request.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    return study(experiment, replace(request, threads=threads))
