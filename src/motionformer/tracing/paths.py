"""Maps → paths: the mean position of attention in each frame, its spread, its peak, and whether there is a peak at all;
and the error of such paths on the motion benchmark, where the true one is known."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import TraceError
from motionformer.logging import show_count
from motionformer.models import Motionformer
from motionformer.models.motionformer import evaluating
from motionformer.tracing.clip import Geometry, find_geometry, prepare_clip
from motionformer.tracing.maps import split_row, walk_layers

REACH = 2
"""Patches around the largest weight that belong to the peak (docs/decisions.md, "where it looks most")."""
MIN_PEAKEDNESS = 0.05
"""Below it a map counts as near uniform, and no path is drawn: measured in docs/seeing.md, "Maps that show nothing"."""
_TINY = 1e-300  # maps are double


def expected_path(maps: Float[Tensor, "*which f s"], centres: Float[Tensor, "s 2"]) -> Float[Tensor, "*which f 2"]:
    """The mean position of each frame's map (soft-argmax); every map sums to one."""
    return maps @ centres


def path_covariance(maps: Float[Tensor, "*which f s"], centres: Float[Tensor, "s 2"]) -> Float[Tensor, "*which f 2 2"]:
    """The covariance of the position under each frame's map."""
    offset = centres - expected_path(maps, centres)[..., None, :]
    return torch.einsum("...s,...si,...sj->...ij", maps, offset, offset)


def peak_path(
    maps: Float[Tensor, "*which f s"], centres: Float[Tensor, "s 2"], patch_size: tuple[float, float]
) -> Float[Tensor, "*which f 2"]:
    """The peak of each frame's map: the mean position of what is above a uniform map, around the largest weight.

    A map is a peak on a ground of small weights everywhere, which pulls its mean to the middle of the frame; and the
    mean of a map of two peaks lies between them. A uniform map has no peak and keeps its mean (see `peakedness`).
    """
    above = _above_uniform(maps, centres, patch_size)
    total = above.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, above / total.clamp(min=_TINY), maps) @ centres


def peakedness(
    maps: Float[Tensor, "*which f s"], centres: Float[Tensor, "s 2"], patch_size: tuple[float, float]
) -> Float[Tensor, "*which f"]:
    """The weight in the peak of each frame's map beyond that of a uniform map.

    0 for a uniform map, almost 1 if one patch gets everything. A map may spread as far as a uniform one and have a
    peak, so the covariance cannot tell; and the entropy of a map of many patches that differ a little everywhere is
    that of a faint peak.
    """
    return _above_uniform(maps, centres, patch_size).sum(dim=-1)


def ellipse(covariance: Float[Tensor, "2 2"], deviations: float = 1.0) -> tuple[float, float, float]:
    """Full lengths of the long and the short axis, and the angle of the long one in degrees from x towards y."""
    lengths, axes = torch.linalg.eigh(covariance)  # ascending
    short, long = (2 * deviations * math.sqrt(max(value, 0.0)) for value in lengths.tolist())
    x, y = axes[:, 1].tolist()
    return long, short, math.degrees(math.atan2(y, x))


def _above_uniform(
    maps: Float[Tensor, "*which f s"], centres: Float[Tensor, "s 2"], patch_size: tuple[float, float]
) -> Float[Tensor, "*which f s"]:
    """What is above a uniform map within `REACH` patches of the largest weight."""
    peak = centres[maps.argmax(dim=-1)]
    apart = (centres - peak[..., None, :]).abs() / centres.new_tensor(patch_size)
    near = (apart < REACH + 0.5).all(dim=-1)
    return (maps - 1 / maps.shape[-1]).clamp(min=0) * near


@dataclass(frozen=True)
class PathError:
    """Mean distances to the true path in patches, over `num_frames` frames of many clips."""

    by_head: Float64[Tensor, "l h"]
    """Of the path of each layer and head."""
    by_layer: Float64[Tensor, " l"]
    """Of the path of each layer's mean map over heads."""
    overall: float
    """Of the path of the mean map over all layers and heads."""
    uniform: float
    """Of a uniform map: the middle of the frame."""
    stay: float
    """Of a path that stays at the query."""
    num_frames: int

    def __repr__(self) -> str:
        return (
            f"PathError(overall={self.overall:.2f}, best layer={float(self.by_layer.min()):.2f}, "
            f"uniform={self.uniform:.2f}, stay={self.stay:.2f} patches over {show_count(self.num_frames, 'frame')})"
        )


@dataclass(frozen=True)
class PathErrors:
    """Errors of the expected path and of the path of the peak: over all frames but the query's own, and over those of
    them in which the disc does not touch the border."""

    everywhere: PathError
    whole: PathError
    peak_everywhere: PathError
    peak_whole: PathError
    peaked: float
    """Share of these frames in which the mean map over all layers and heads has a peak. Without one, the path of the
    peak, which is counted all the same, is noise."""


def path_error(
    model: Motionformer,
    benchmark: MotionBenchmark,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> PathErrors:
    """Measure how well attention follows the disc of the motion benchmark, whose path is known.

    The query is the patch at the disc's centre in the middle frame. In every other token frame, the error is the
    distance from the map's peak (`peak_path`) or mean (`expected_path`) to the true centre, in patches. The world of
    the benchmark is a torus, so the distance is the shorter way around; but a mean is an ordinary one, and a disc that
    is half on the left border and half on the right one has none. So errors are given twice: over all frames, and over
    those in which the disc is whole.

    Args:
        model: any model with attention maps.
        benchmark: clips of the motion benchmark.
        progress: wraps the clip numbers, to show a progress bar.

    Returns:
        The errors of both paths, over all clips.

    Raises:
        TraceError: there are no clips, or no frame shows a whole disc.

    Example:
        >>> from motionformer import load_model
        >>> from motionformer.data.motion import MotionBenchmark
        >>> error = path_error(load_model("motion-tiny"), MotionBenchmark("easy", "val", 2)).peak_everywhere
        >>> error.overall < error.uniform
        True
    """
    if len(benchmark) == 0:
        raise TraceError("the benchmark has no clips: give it one or more.")
    geometry = find_geometry(model.config, (benchmark.size, benchmark.size))
    with evaluating(model):
        measured = [_measure(model, benchmark, geometry, index) for index in progress(range(len(benchmark)))]
    errors = torch.cat([distances for distances, _, _ in measured], dim=1)
    whole = torch.cat([is_whole for _, is_whole, _ in measured])
    peaked = torch.cat([has_peak for _, _, has_peak in measured]).double().mean()
    shape = model.config.depth, model.config.num_heads
    means = [_mean(of_path, shape) for path in errors for of_path in (path, path[whole])]
    return PathErrors(means[0], means[1], means[2], means[3], float(peaked))


def _torus_distance(a: Float[Tensor, "*#p 2"], b: Float[Tensor, "*#p 2"], size: int) -> Float[Tensor, "*p"]:
    """The shorter way from a to b in a world that repeats every `size`."""
    apart = (a - b).abs() % size
    shorter: Tensor = torch.minimum(apart, size - apart).norm(dim=-1)
    return shorter


def _mean_positions(path: Float[Tensor, "t 2"], tubelet: int, size: int) -> Float[Tensor, "f 2"]:
    """The mean position in each token frame; around the border, not across the picture."""
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
    frames = prepare_clip(model, clip.frames)
    rows = torch.stack([layer.row(token) for _, layer in walk_layers(model, frames, range(model.config.depth))])
    overall = rows.mean(dim=(0, 1))
    candidates = [*rows.flatten(0, 1), *rows.mean(dim=1), overall, torch.ones_like(overall)]
    num_frames = len(clip.frames) // geometry.tubelet
    maps = torch.stack([split_row(row, num_frames, model.config.num_prefix_tokens).space for row in candidates], dim=1)
    still = torch.tensor([query.x, query.y], dtype=torch.float64).expand(num_frames, 1, 2)
    centres = geometry.patch_centres()
    paths = [expected_path(maps, centres), peak_path(maps, centres, geometry.patch_size)]
    paths = [torch.cat((path, still), dim=1) for path in paths]
    truth = _mean_positions(clip.path.double(), geometry.tubelet, benchmark.size)
    distances = _torus_distance(torch.stack(paths), truth[:, None], benchmark.size) / geometry.patch_size[0]
    is_whole = ((truth > radius) & (truth < benchmark.size - radius)).all(dim=1)
    has_peak = peakedness(maps[:, -2], centres, geometry.patch_size) >= MIN_PEAKEDNESS
    others = torch.arange(num_frames) != query.token_frame
    return distances[:, others], is_whole[others], has_peak[others]


def _mean(errors: Float64[Tensor, "p k"], shape: tuple[int, int]) -> PathError:
    if not len(errors):
        raise TraceError("no frame shows a whole disc, so there is nothing to measure: give more or longer clips.")
    mean = errors.mean(dim=0)
    depth, heads = shape
    by_head, by_layer, (overall, uniform, stay) = mean.split((depth * heads, depth, 3))
    return PathError(
        by_head.view(depth, heads), by_layer, float(overall), float(uniform), float(stay), num_frames=len(errors)
    )
