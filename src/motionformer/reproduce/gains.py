"""A3: the classes that gain and lose most when joint attention becomes trajectory attention."""

from statistics import mean

from motionformer.data.source import parse_motion
from motionformer.errors import RecipeError
from motionformer.evaluation import Results, evaluate, open_source
from motionformer.evaluation.compare import Comparison, compare
from motionformer.reproduce.experiments import Experiment
from motionformer.reproduce.jobs import Job, choose_rows, make_recipe, only_finished, plan_jobs, train_jobs
from motionformer.reproduce.outcome import Line, Outcome, new_outcome
from motionformer.reproduce.request import Request
from motionformer.weights import load_model


def measure_gains(experiment: Experiment, request: Request) -> Outcome:
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
    about = f"{compared[0].videos} test videos a seed; trajectory {mean(c.b_top1 for c in compared):.1%} of all, joint "
    about += f"{mean(c.a_top1 for c in compared):.1%}"
    if len(compared) == 1:
        low, high = (100 * bound for bound in compared[0].interval)
        about += f"; gain {low:+.1f} to {high:+.1f} points (95 % CI, paired)"
    return new_outcome(experiment, request, about, _by_class(compared), measure="gain in top-1, points")


def score(job: Job) -> Results:
    """The job's model on the test clips of the benchmark, or on the videos that were held out; kept in its folder."""
    recipe = make_recipe(job)
    is_made = parse_motion(recipe.data.val) is not None
    model = load_model(job.folder / "model")
    source = open_source(
        f"{recipe.data.val}:{recipe.data.val_clips}" if is_made else recipe.data.val,
        model.config.input,
        split="test" if is_made else None,
        class_names=model.config.labels,
    )
    return evaluate(model, source, name=job.row.label, batch=32, output=job.folder / "results", show_progress=False)


def _by_class(compared: list[Comparison]) -> list[Line]:
    """A line a class with the gain of every seed; largest mean gain first."""
    gains: dict[str, list[float]] = {}
    for comparison in compared:
        for change in comparison.classes:
            gains.setdefault(change.name, []).append(100 * change.gain)
    lines = [Line("all", tuple(100 * (one.b_top1 - one.a_top1) for one in compared))]
    return lines + sorted((Line(name, tuple(each)) for name, each in gains.items()), key=lambda line: -line.mean)
