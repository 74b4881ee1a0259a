"""A4: attention maps from a query point. Pictures of three schemes, and, as the disc's true path is known, how far
from it each looks."""

from pathlib import Path
from statistics import mean

import torch

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import RecipeError
from motionformer.experiments.tables.experiments import Experiment
from motionformer.experiments.tables.jobs import choose_rows, only_finished, plan_jobs, train_jobs
from motionformer.experiments.tables.outcome import Line, Outcome, file_stem, new_outcome
from motionformer.experiments.tables.request import Request
from motionformer.models import Motionformer
from motionformer.trace import PathErrors, compare, path_error
from motionformer.weights import load_model

LEVEL = "easy"
CLIP = "motion:easy/5"  # the first whose disc never leaves the frame
CLIPS = 128


def measure_maps(experiment: Experiment, request: Request) -> Outcome:
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
    compare(models, CLIP, layer="mean").save(picture)
    request.tell(f"{picture}: mean of layers and heads, the first seed")
    lines = [Line(label, tuple(values)) for label, values in found.items()]
    about = (
        f"how far from the disc the mean map of all layers and heads is strongest, or is on average;"
        f" {CLIPS} test clips of {LEVEL}, frames with a whole disc; frames in which that map has a peak and is not near"
        f" uniform: {', '.join(f'{label} {mean(shares):.0%}' for label, shares in peaked.items())}"
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
        model, MotionBenchmark(LEVEL, "test", CLIPS, frames=shape.frames, stride=shape.stride, size=shape.height)
    )
