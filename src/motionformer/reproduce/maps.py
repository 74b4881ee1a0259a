"""A4: attention maps from a query point. Pictures of three schemes, and, as the disc's true path is known, how far
from it each looks."""

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import RecipeError
from motionformer.reproduce.experiments import Experiment
from motionformer.reproduce.jobs import choose_rows, plan_jobs, train_jobs
from motionformer.reproduce.outcome import Line, Outcome, new_outcome
from motionformer.reproduce.request import Request
from motionformer.trace import PathErrors, compare, path_error
from motionformer.weights import load_model

LEVEL = "easy"
CLIP = "motion:easy/5"  # the first whose disc never leaves the frame
CLIPS = 128
CHOSEN_ON = 1000
"""Seed of the clips that the layer is chosen on; others than those that are reported."""


def measure_maps(experiment: Experiment, request: Request) -> Outcome:
    """Train the schemes, draw one clip with each, and measure the paths of each scheme's best layer."""
    if request.data is not None:
        raise RecipeError("where things go in your videos is not known: `motionformer trace VIDEO` draws their maps.")
    jobs = plan_jobs(choose_rows(experiment, request), request)
    if request.train:
        train_jobs(jobs, request)
    found: dict[str, list[float]] = {}
    for job in jobs:
        model = load_model(job.folder / "model")
        errors = [path_error(model, clips) for clips in _clips(model.config.input.frames, model.config.input.height)]
        found.setdefault(job.row.label, []).append(_best_layer(*errors))
        still = errors[1].whole.stay
        request.tell(f"{job.row.label}, seed {job.seed}: {found[job.row.label][-1]:.2f} patches")
    picture = request.out / f"{experiment.id}-{request.scale}-maps.png"
    models = {job.row.label: job.folder / "model" for job in jobs if job.seed == 0}
    compare(models, CLIP, layer=2).save(picture)
    request.tell(f"{picture}: layer 2 of seed 0")
    lines = [Line(label, tuple(values)) for label, values in found.items()]
    about = (
        f"distance of the best layer's expected path from the disc, {CLIPS} clips of {LEVEL}, frames with a whole disc"
    )
    return new_outcome(
        experiment, request, about, [*lines, Line("a path that stands still", (still,))], measure="path error, patches"
    )


def _clips(frames: int, size: int) -> tuple[MotionBenchmark, MotionBenchmark]:
    """To choose the layer on, and to report."""
    return (
        MotionBenchmark(LEVEL, "train", CLIPS, frames=frames, size=size, seed=CHOSEN_ON),
        MotionBenchmark(LEVEL, "val", CLIPS, frames=frames, size=size),
    )


def _best_layer(chosen_on: PathErrors, reported: PathErrors) -> float:
    return float(reported.whole.by_layer[chosen_on.whole.best_layer])
