"""How well attention follows the disc of the motion benchmark, whose path is known.

The query is the patch at the disc's centre in the middle frame. In every other token frame, the error is the distance
from where the map is to the true centre, in patches; where it is strongest (`peak_path`), and where it is on average
(`expected_path`). The world of the benchmark is a torus, so the distance is the shorter way around; but a mean is an
ordinary one, and a disc that is half on the left border and half on the right one has none. So errors are given twice:
over all frames, and over those in which the disc is whole.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import TraceError
from motionformer.models import Motionformer
from motionformer.models.motionformer import evaluating
from motionformer.trace.maps import split_row
from motionformer.trace.paths import MIN_PEAKEDNESS, expected_path, peak_path, peakedness
from motionformer.trace.query import Geometry, find_geometry
from motionformer.trace.run import prepare
from motionformer.trace.walk import walk

Progress = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True)
class PathError:
    """Mean distances in patches over `num_places` frames of many clips."""

    by_head: Float64[Tensor, "l h"]
    """Of the path of each layer and head."""
    by_layer: Float64[Tensor, " l"]
    """Of the path of each layer's mean map over heads."""
    overall: float
    """Of the path of the mean map over all layers and heads."""
    uniform: float
    """Of a map that is the same everywhere: the middle of the frame."""
    stay: float
    """Of a path that stays where the query is."""
    num_places: int


@dataclass(frozen=True)
class PathErrors:
    """Of the expected path and of the path of the peak: over all frames but the query's own, and over those of them in
    which the disc does not touch the border."""

    everywhere: PathError
    whole: PathError
    peak_everywhere: PathError
    peak_whole: PathError
    peaked: float
    """Share of these frames in which the mean map over all layers and heads has a peak. Where it has none, the path of
    the peak, which is counted all the same, is that of noise."""


def path_error(model: Motionformer, benchmark: MotionBenchmark, progress: Progress = iter) -> PathErrors:
    """The errors of both paths, over all clips of the benchmark."""
    if len(benchmark) == 0:
        raise TraceError("the mean error of no clips is not known: make the benchmark with some.")
    geometry = find_geometry(model.config, (benchmark.size, benchmark.size))
    with evaluating(model):
        places = [_measure(model, benchmark, geometry, index) for index in progress(range(len(benchmark)))]
    errors = torch.cat([distances for distances, _, _ in places], dim=1)
    whole = torch.cat([is_whole for _, is_whole, _ in places])
    peaked = torch.cat([has_peak for _, _, has_peak in places]).double().mean()
    shape = model.config.depth, model.config.num_heads
    means = [_mean(of_path, shape) for path in errors for of_path in (path, path[whole])]
    return PathErrors(means[0], means[1], means[2], means[3], float(peaked))


def torus_distance(a: Float[Tensor, "*#place 2"], b: Float[Tensor, "*#place 2"], size: int) -> Float[Tensor, "*place"]:
    """The shorter way from a to b in a world that repeats every `size`."""
    apart = (a - b).abs() % size
    shorter: Tensor = torch.minimum(apart, size - apart).norm(dim=-1)
    return shorter


def mean_places(path: Float[Tensor, "t 2"], tubelet: int, size: int) -> Float[Tensor, "f 2"]:
    """The mean place in each token frame; around the border, not across the picture."""
    steps = rearrange(path, "(f tubelet) xy -> f tubelet xy", tubelet=tubelet)
    first = steps[:, :1]
    ahead = (steps - first + size / 2) % size - size / 2
    return (first[:, 0] + ahead.mean(dim=1)) % size


def _measure(
    model: Motionformer, benchmark: MotionBenchmark, geometry: Geometry, index: int
) -> tuple[Float64[Tensor, "2 f k"], Bool[Tensor, " f"], Bool[Tensor, " f"]]:
    """In each token frame but the query's own: the errors of all mean and peak paths, whether the disc is whole, and
    whether the mean map of all layers and heads has a peak."""
    clip, radius = benchmark[index], benchmark.scene(index).disc.radius * benchmark.size
    middle = len(clip.frames) // 2
    x, y = clip.path[middle].tolist()
    query = geometry.query((x, y), middle)
    token = model.config.num_prefix_tokens + query.token
    frames = prepare(model, clip.frames)
    rows = torch.stack([layer.row(token) for _, layer in walk(model, frames, range(model.config.depth))])
    overall = rows.mean(dim=(0, 1))
    candidates = [*rows.flatten(0, 1), *rows.mean(dim=1), overall, torch.ones_like(overall)]
    num_frames = len(clip.frames) // geometry.tubelet
    maps = torch.stack([split_row(row, num_frames, model.config.num_prefix_tokens).space for row in candidates], dim=1)
    still = torch.tensor([query.x, query.y], dtype=torch.float64).expand(num_frames, 1, 2)
    places = geometry.places()
    paths = [expected_path(maps, places), peak_path(maps, places, geometry.patch_size)]
    paths = [torch.cat((path, still), dim=1) for path in paths]
    truth = mean_places(clip.path.double(), geometry.tubelet, benchmark.size)
    distances = torus_distance(torch.stack(paths), truth[:, None], benchmark.size) / geometry.patch_size[0]
    is_whole = ((truth > radius) & (truth < benchmark.size - radius)).all(dim=1)
    has_peak = peakedness(maps[:, -2], places, geometry.patch_size) >= MIN_PEAKEDNESS
    others = torch.arange(num_frames) != query.token_frame
    return distances[:, others], is_whole[others], has_peak[others]


def _mean(errors: Float64[Tensor, "places k"], shape: tuple[int, int]) -> PathError:
    if not len(errors):
        raise TraceError("no frame shows a whole disc, so there is nothing to measure: give more or longer clips.")
    mean = errors.mean(dim=0)
    depth, heads = shape
    by_head, by_layer, (overall, uniform, stay) = mean.split((depth * heads, depth, 3))
    return PathError(
        by_head.view(depth, heads), by_layer, float(overall), float(uniform), float(stay), num_places=len(errors)
    )
