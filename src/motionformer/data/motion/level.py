"""How hard the motion benchmark is: a few knobs, and three settings of them by name.

Lengths are fractions of the frame's side, so a level looks the same at every size; speeds are per frame.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
