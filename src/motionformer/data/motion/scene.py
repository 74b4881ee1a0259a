"""How hard the motion benchmark is, and one scene of it as numbers: every random draw of a clip, and no pixel.

The world is a torus the size of the frame: what leaves on one side comes in on the other. Everything starts at a
uniformly random place, and on a torus a uniform place stays uniform whatever it is moved by. So in every single frame
the place of the disc is uniform and independent of its direction and of all else, and no frame alone says anything
about the class (docs/motion-benchmark.md). All lengths are fractions of the frame's side, x to the right and y down, so
a level looks the same at every size; speeds are per frame.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int

Range = tuple[float, float]


@dataclass(frozen=True)
class Level:
    """What a scene of the benchmark contains.

    Attributes:
        radius: of the disc that gives the class.
        speed: of the disc and of the distractors across the picture.
        pan: speed at which the camera lets the ground pass by, in a direction that has nothing to do with the class.
        ground_contrast: of the texture behind everything, as a share of the full range of brightness.
        ground_waves: number of waves over the frame in the finest detail of that texture.
        num_distractors: plain squares that drift in directions of their own.
        distractor_radius: half their side.
        num_occluders: bars fixed to the ground, in front of everything.
        occluder_width: of a bar.
    """

    radius: Range = (0.13, 0.17)
    speed: Range = (0.04, 0.07)
    pan: Range = (0.0, 0.0)
    ground_contrast: float = 0.15
    ground_waves: int = 3
    num_distractors: int = 0
    distractor_radius: Range = (0.05, 0.08)
    num_occluders: int = 0
    occluder_width: Range = (0.06, 0.1)

    def __post_init__(self) -> None:
        if max(self.radius[1], self.distractor_radius[1]) > 0.3:
            raise ValueError("a radius above 0.3 of the frame would meet itself around the torus; make it smaller.")
        if not 0.0 <= self.ground_contrast <= 0.7:
            raise ValueError(f"ground_contrast is 0 to 0.7, where pixels stay in range; not {self.ground_contrast}.")


LEVELS: Mapping[str, Level] = MappingProxyType(
    {
        "easy": Level(),
        "medium": Level(pan=(0.0, 0.02), ground_contrast=0.25, num_distractors=1),
        "hard": Level(
            pan=(0.0, 0.03),
            ground_contrast=0.35,
            ground_waves=4,
            num_distractors=2,
            num_occluders=1,
        ),
    }
)


def find_level(level: str | Level) -> Level:
    """A level by name; a `Level` of one's own is returned as it is."""
    if isinstance(level, Level):
        return level
    if level not in LEVELS:
        raise ValueError(f"there is no level {level!r}; there are {', '.join(LEVELS)}.")
    return LEVELS[level]


CLASSES = ("right", "up-right", "up", "up-left", "left", "down-left", "down", "down-right")
"""The direction of the disc across the picture, counter-clockwise."""


@dataclass(frozen=True)
class Body:
    """Something that moves: where it starts, and its step per frame across the picture."""

    start: Float[np.ndarray, "2"]
    step: Float[np.ndarray, "2"]
    radius: float
    colours: Float[np.ndarray, "2 3"]
    stripes: Float[np.ndarray, "3"]
    """Waves per unit of length along x and along y, and a phase; zeros make it plain."""

    def places(self, frames: int) -> Float[np.ndarray, "{frames} 2"]:
        """Its centre in every frame, in [0, 1)."""
        places: Float[np.ndarray, "t 2"] = (self.start + np.arange(frames)[:, None] * self.step) % 1.0
        return places


@dataclass(frozen=True)
class Ground:
    """A periodic texture: a sum of plane waves with whole numbers of periods over the frame."""

    start: Float[np.ndarray, "2"]
    step: Float[np.ndarray, "2"]
    waves: Int[np.ndarray, "w 2"]
    weights: Float[np.ndarray, "w 3"]
    phases: Float[np.ndarray, " w"]
    mean: Float[np.ndarray, "3"]


@dataclass(frozen=True)
class Bar:
    """An occluder across the whole frame, fixed to the ground; `axis` 0 stands upright, 1 lies."""

    axis: int
    start: float
    width: float
    colour: Float[np.ndarray, "3"]


@dataclass(frozen=True)
class Scene:
    label: int
    disc: Body
    ground: Ground
    distractors: tuple[Body, ...] = ()
    bars: tuple[Bar, ...] = ()


def draw_scene(level: Level, label: int, rng: np.random.Generator) -> Scene:
    """A random scene whose disc moves across the picture in direction `label` of `CLASSES`."""
    pan = polar(rng.uniform(*level.pan), rng.uniform(0.0, 2 * np.pi))
    disc = Body(
        start=rng.random(2),
        step=velocity(label, rng.uniform(*level.speed)),
        radius=rng.uniform(*level.radius),
        colours=_disc_colours(rng),
        stripes=np.append(polar(1 / rng.uniform(0.12, 0.2), rng.uniform(0.0, 2 * np.pi)), rng.random()),
    )
    return Scene(
        label,
        disc,
        _draw_ground(level, pan, rng),
        tuple(_draw_distractor(level, rng) for _ in range(level.num_distractors)),
        tuple(_draw_bar(level.occluder_width, rng) for _ in range(level.num_occluders)),
    )


def velocity(label: int, speed: float) -> Float[np.ndarray, "2"]:
    """The step per frame of a disc of class `label`."""
    return polar(speed, label * np.pi / 4)


def polar(length: float, angle: float) -> Float[np.ndarray, "2"]:
    """A vector; the angle is counter-clockwise as seen, and y points down."""
    return length * np.array([np.cos(angle), -np.sin(angle)])


def _disc_colours(rng: np.random.Generator) -> Float[np.ndarray, "2 3"]:
    """Bright stripes between dark ones: the disc differs from any ground by its texture, not by one colour."""
    return np.stack([rng.uniform(0.75, 1.0, 3), rng.uniform(0.0, 0.35, 3)])


def _draw_ground(level: Level, pan: Float[np.ndarray, "2"], rng: np.random.Generator) -> Ground:
    count = 6
    weights = rng.uniform(-1.0, 1.0, (count, 3))
    weights *= level.ground_contrast / 2 / np.abs(weights).sum(axis=0)
    return Ground(
        start=rng.random(2),
        step=pan,
        waves=rng.integers(-level.ground_waves, level.ground_waves, (count, 2), endpoint=True),
        weights=weights,
        phases=rng.random(count),
        mean=rng.uniform(0.2, 0.3, 3) + level.ground_contrast / 2,
    )


def _draw_distractor(level: Level, rng: np.random.Generator) -> Body:
    colour = rng.uniform(0.1, 0.9, 3)
    return Body(
        start=rng.random(2),
        step=polar(rng.uniform(*level.speed), rng.uniform(0.0, 2 * np.pi)),
        radius=rng.uniform(*level.distractor_radius),
        colours=np.stack([colour, colour]),
        stripes=np.zeros(3),
    )


def _draw_bar(width: Range, rng: np.random.Generator) -> Bar:
    return Bar(int(rng.integers(2)), rng.random(), rng.uniform(*width), rng.uniform(0.2, 0.6, 3))
