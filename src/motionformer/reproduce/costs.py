"""A5: what the models cost, by the paper's count and as this code computes them; nothing is trained or allocated."""

from motionformer.errors import RecipeError
from motionformer.lra.attends import COMPARED
from motionformer.lra.costs import PUBLISHED as ARENA
from motionformer.lra.costs import encoder_macs
from motionformer.models.costs import measure, paper_macs
from motionformer.models.variants import VARIANTS
from motionformer.reproduce.experiments import Experiment
from motionformer.reproduce.outcome import Line, Outcome, new_outcome
from motionformer.reproduce.request import Request

PUBLISHED = {
    "joint-base": "180.6",
    "divided-base": "185.8",
    "motionformer-base": "369.5",
    "motionformer-hr": "958.8",
    "motionformer-l": "1185.2",
    "motionformer-h": "",
}
"""G multiply-adds of one view in the paper."""
EQUATIONS = "G multiply-adds, the paper's equations"
COMPUTED = "G multiply-adds, as computed here"
MEMORY = "GB of a training step, one clip, float32"
ENCODER = "ListOps encoder, 2,048 tokens: G multiply-adds"


def count_costs(experiment: Experiment, request: Request) -> Outcome:
    """Multiply-adds twice, memory once, and the encoder of Long Range Arena."""
    request.refuse_processes()
    if request.data is not None or request.changes:
        raise RecipeError("costs are counted: there is nothing to read and nothing to change.")
    chosen = request.choose(dict.fromkeys((*PUBLISHED, *COMPARED)))
    names = [name for name in PUBLISHED if name in chosen]
    found = {name: measure(VARIANTS[name]) for name in names}
    literal = [
        Line(name, (paper_macs(VARIANTS[name]) / 1e9,), group=EQUATIONS, paper=PUBLISHED[name]) for name in names
    ]
    computed = [Line(name, (cost.macs / 1e9,), group=COMPUTED, paper=PUBLISHED[name]) for name, cost in found.items()]
    memory = [Line(name, (cost.training_total_bytes / 1e9,), group=MEMORY) for name, cost in found.items()]
    arena = [
        Line(name, (encoder_macs(name) / 1e9,), group=ENCODER, paper=str(ARENA.get(name, "")))
        for name in COMPARED
        if name in chosen
    ]
    about = "counted by running the code on tensors without data; measured times and memory are in docs/benchmarks.md"
    return new_outcome(experiment, request, about, [*literal, *computed, *memory, *arena], measure="")
