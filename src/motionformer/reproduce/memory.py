"""T3m: the memory column of table 3, measured at base size on a CPU, as ratios to exact attention."""

from motionformer.errors import RecipeError
from motionformer.models.costs import training_step_peak
from motionformer.reproduce.experiments import Experiment
from motionformer.reproduce.outcome import Line, Outcome, new_outcome
from motionformer.reproduce.request import Request
from motionformer.training.model import build_config
from motionformer.training.recipe import load_recipe
from motionformer.training.shipped import find_recipe

TABLE = {
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
EXACT = "exact"
RATIO, SIZE = "of exact", "GB beyond weights and gradients"


def measure_memory(experiment: Experiment, request: Request) -> Outcome:
    """A training step of each model in a process of its own; what exact attention takes is always measured."""
    request.refuse_processes()
    if request.data is not None or request.changes or request.scale == "paper":
        raise RecipeError("memory is measured with the models of the paper on one clip of noise: nothing can be given.")
    if not request.train:
        raise RecipeError("memory is measured anew each time: leave --collect out.")
    chosen = request.choose(TABLE)
    bytes_of = {}
    for label in dict.fromkeys((EXACT, *chosen)):
        bytes_of[label] = training_step_peak(build_config(load_recipe(find_recipe(f"k400/{TABLE[label][0]}")), 400))
        request.tell(f"{label}: {bytes_of[label] / 1e6:,.0f} MB")
    ratios = [
        Line(label, (bytes_of[label] / bytes_of[EXACT],), group=RATIO, paper=f"{TABLE[label][1] / TABLE[EXACT][1]:.2f}")
        for label in chosen
    ]
    sizes = [Line(label, (bytes_of[label] / 1e9,), group=SIZE, paper=f"{TABLE[label][1]}") for label in chosen]
    about = "peak of one step of one clip of 16 × 224², float32 on a CPU; the paper's GB are CUDA memory in all"
    return new_outcome(experiment, request, about, [*ratios, *sizes], measure="")
