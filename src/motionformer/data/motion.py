"""The built-in motion benchmark: clips whose class is only in the motion. Scene (numbers) → render (pixels) → clips.

The world is a torus the size of the frame: what leaves on one side comes in on the other. Everything starts at a
uniformly random position, and on a torus that stays uniform whatever it is moved by. So in every single frame the
position of the disc is independent of its direction and of all else, and no frame alone tells anything about the class
(docs/motion-benchmark.md). All lengths are fractions of the frame's side, x to the right and y down, so a level looks
the same at every size; speeds are per frame.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import av
import numpy as np
import torch
from jaxtyping import Float, Float32, Int, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from motionformer.runs import write_atomically

__all__ = ["CLASSES", "LEVELS", "Level", "MotionBenchmark", "MotionClip", "write_videos"]

_Range = tuple[float, float]
Split = Literal["train", "val", "test"]
_SPLITS: tuple[Split, ...] = ("train", "val", "test")
_MIN_SIZE = 16
_Pixels = Float32[np.ndarray, "..."]
_Distance = Callable[[_Pixels, _Pixels], _Pixels]


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

    radius: _Range = (0.13, 0.17)
    speed: _Range = (0.04, 0.07)
    pan: _Range = (0.0, 0.0)
    ground_contrast: float = 0.15
    ground_waves: int = 3
    num_distractors: int = 0
    distractor_radius: _Range = (0.05, 0.08)
    num_occluders: int = 0
    occluder_width: _Range = (0.06, 0.1)

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


CLASSES = ("right", "up-right", "up", "up-left", "left", "down-left", "down", "down-right")
"""The direction of the disc across the picture, counter-clockwise."""


@dataclass(frozen=True)
class _Body:
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
class _Ground:
    """A periodic texture: a sum of plane waves with whole numbers of periods over the frame."""

    start: Float[np.ndarray, "2"]
    step: Float[np.ndarray, "2"]
    waves: Int[np.ndarray, "w 2"]
    weights: Float[np.ndarray, "w 3"]
    phases: Float[np.ndarray, " w"]
    mean: Float[np.ndarray, "3"]


@dataclass(frozen=True)
class _Bar:
    """An occluder across the whole frame, fixed to the ground; `axis` 0 stands upright, 1 lies."""

    axis: int
    start: float
    width: float
    colour: Float[np.ndarray, "3"]


@dataclass(frozen=True)
class _Scene:
    label: int
    disc: _Body
    ground: _Ground
    distractors: tuple[_Body, ...] = ()
    bars: tuple[_Bar, ...] = ()

    @classmethod
    def draw(cls, level: Level, label: int, rng: np.random.Generator) -> "_Scene":
        """A random scene whose disc moves across the picture in direction `label` of `CLASSES`."""
        pan = _polar(rng.uniform(*level.pan), rng.uniform(0.0, 2 * np.pi))
        disc = _Body(
            start=rng.random(2),
            step=_polar(rng.uniform(*level.speed), label * np.pi / 4),
            radius=rng.uniform(*level.radius),
            # bright stripes between dark ones: the disc differs from any ground by its texture, not by one colour
            colours=np.stack([rng.uniform(0.75, 1.0, 3), rng.uniform(0.0, 0.35, 3)]),
            stripes=np.append(_polar(1 / rng.uniform(0.12, 0.2), rng.uniform(0.0, 2 * np.pi)), rng.random()),
        )
        return cls(
            label,
            disc,
            _draw_ground(level, pan, rng),
            tuple(_draw_distractor(level, rng) for _ in range(level.num_distractors)),
            tuple(_draw_bar(level.occluder_width, rng) for _ in range(level.num_occluders)),
        )

    def render(self, frames: int, size: int) -> UInt8[np.ndarray, "{frames} {size} {size} 3"]:
        """The clip, back to front: ground, distractors, disc, bars."""
        canvas = _ground(self.ground, frames, size)
        for body in self.distractors:
            _paint(canvas, body, lambda x, y: np.maximum(np.abs(x), np.abs(y)))
        _paint(canvas, self.disc, np.hypot)
        for bar in self.bars:
            _paint_bar(canvas, bar, self.ground)
        pixels: UInt8[np.ndarray, "t size size 3"] = np.rint(canvas * 255).astype(np.uint8)
        return pixels

    def disc_path(self, frames: int, size: int) -> Float32[np.ndarray, "{frames} 2"]:
        """Where the centre of the disc is, (x, y) in pixels; the first pixel reaches from 0 to 1."""
        path: _Pixels = (self.disc.places(frames) * size).astype(np.float32) % np.float32(size)
        return path


def _polar(length: float, angle: float) -> Float[np.ndarray, "2"]:
    """A vector; the angle is counter-clockwise as seen, and y points down."""
    return length * np.array([np.cos(angle), -np.sin(angle)])


def _draw_ground(level: Level, pan: Float[np.ndarray, "2"], rng: np.random.Generator) -> _Ground:
    count = 6
    weights = rng.uniform(-1.0, 1.0, (count, 3))
    weights *= level.ground_contrast / 2 / np.abs(weights).sum(axis=0)
    return _Ground(
        start=rng.random(2),
        step=pan,
        waves=rng.integers(-level.ground_waves, level.ground_waves, (count, 2), endpoint=True),
        weights=weights,
        phases=rng.random(count),
        mean=rng.uniform(0.2, 0.3, 3) + level.ground_contrast / 2,
    )


def _draw_distractor(level: Level, rng: np.random.Generator) -> _Body:
    colour = rng.uniform(0.1, 0.9, 3)
    return _Body(
        start=rng.random(2),
        step=_polar(rng.uniform(*level.speed), rng.uniform(0.0, 2 * np.pi)),
        radius=rng.uniform(*level.distractor_radius),
        colours=np.stack([colour, colour]),
        stripes=np.zeros(3),
    )


def _draw_bar(width: _Range, rng: np.random.Generator) -> _Bar:
    return _Bar(int(rng.integers(2)), rng.random(), rng.uniform(*width), rng.uniform(0.2, 0.6, 3))


class MotionClip(NamedTuple):
    """What a decoded video gives, and what only a made one knows: where the object was."""

    frames: UInt8[Tensor, "t H W 3"]
    label: int
    path: Float32[Tensor, "t 2"]
    """The centre of the disc, (x, y) in pixels from the upper left corner; it wraps around with the disc."""


class MotionBenchmark(Dataset[MotionClip]):
    """A disc that moves in one of eight directions: `benchmark[i]` is a `MotionClip`.

    Item i depends on seed, split and i only (and on the level, frames, stride and size it is drawn for): not on order,
    process or the number of clips. Classes take turns, so any eight neighbours hold each once. With a `stride` a clip
    holds every stride-th frame of a longer one, as a model with that stride sees a video.

    >>> MotionBenchmark("easy", "val", num_clips=64)[3].frames.shape
    torch.Size([8, 48, 48, 3])
    """

    classes = CLASSES

    def __init__(
        self,
        level: str | Level = "easy",
        split: Split = "train",
        num_clips: int = 4096,
        *,
        frames: int = 8,
        stride: int = 1,
        size: int = 48,
        seed: int = 0,
    ) -> None:
        if split not in _SPLITS:
            raise ValueError(f"split is one of {', '.join(_SPLITS)}; not {split!r}.")
        if num_clips < 0 or frames < 1 or stride < 1 or size < _MIN_SIZE or seed < 0:
            raise ValueError(
                f"cannot make {num_clips} clips of {frames} frames ({stride} apart) of {size} px from seed {seed}: "
                f"counts and the seed are not negative, a clip has a frame or more, a frame {_MIN_SIZE} px or more."
            )
        if isinstance(level, str) and level not in LEVELS:
            raise ValueError(f"there is no level {level!r}; there are {', '.join(LEVELS)}.")
        self.level = LEVELS[level] if isinstance(level, str) else level
        self.split = split
        self.num_clips = num_clips
        self.frames = frames
        self.stride = stride
        self.size = size
        self.seed = seed

    def __len__(self) -> int:
        return self.num_clips

    def __getitem__(self, index: int) -> MotionClip:
        scene, length = self.scene(index), (self.frames - 1) * self.stride + 1
        frames, path = (
            torch.from_numpy(of(length, self.size)[:: self.stride]) for of in (scene.render, scene.disc_path)
        )
        return MotionClip(frames, scene.label, path)

    def scene(self, index: int) -> _Scene:
        """The numbers that clip `index` is painted from."""
        if not -self.num_clips <= index < self.num_clips:
            raise IndexError(f"clip {index} of {self.num_clips}.")
        index %= self.num_clips
        rng = np.random.default_rng((self.seed, _SPLITS.index(self.split), index))
        return _Scene.draw(self.level, index % len(CLASSES), rng)

    def __repr__(self) -> str:
        return (
            f"MotionBenchmark({self.num_clips} {self.split} clips of {self.frames} frames, {self.stride} apart, of "
            f"{self.size} px, "
            f"seed {self.seed}, {self.level})"
        )


_PATHS_FILE = "paths.json"
_ENCODING = {"crf": "6", "preset": "fast", "threads": "1", "mbtree": "0"}


def write_videos(
    folder: str | Path,
    level: str | Level = "easy",
    num_clips: int = 64,
    *,
    split: Split = "test",
    frames: int = 8,
    size: int = 48,
    seed: int = 0,
    fps: int = 30,
) -> Path:
    """Write `<folder>/<class>/00000.mp4` … and `<folder>/paths.json`; return the path of the latter.

    That file holds, for every video by its path inside the folder, its class and the centre of the disc in every
    frame, (x, y) in pixels. `fps` is the rate at which models count their stride, so that a model which was trained
    on the benchmark sees every frame once. Clips of the split `train` are those that models of the benchmark, as
    `motion-tiny`, have learnt from. The folder must be new or empty: old clips would be taken for part of it.
    """
    if size % 2:
        raise ValueError(f"video frames have even sides; not {size}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: write the videos into a new folder, or empty this one first.")
    benchmark = MotionBenchmark(level, split, num_clips, frames=frames, size=size, seed=seed)
    videos = {}
    for index in range(num_clips):
        clip = benchmark[index]
        name = benchmark.classes[clip.label]
        file = folder / name / f"{index:05d}.mp4"
        file.parent.mkdir(exist_ok=True)
        write_video(file, clip.frames.numpy(), fps)
        videos[file.relative_to(folder).as_posix()] = {"class": name, "path": clip.path.tolist()}
    paths = folder / _PATHS_FILE
    write_atomically(paths, json.dumps({"size": size, "fps": fps, "videos": videos}, indent=1))
    return paths


def write_video(file: Path, frames: UInt8[np.ndarray, "t H W 3"], fps: int) -> None:
    """H.264 that every player shows (4:2:0), at a quality where only fine colour is lost.

    The same bytes every time: by one thread, and without the encoder's macroblock tree, which gave other bytes from
    process to process.
    """
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options=_ENCODING)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def _ground(ground: _Ground, frames: int, size: int) -> Float32[np.ndarray, "{frames} {size} {size} 3"]:
    """cos(x-part + y-part) is split into products, so a frame is one small matrix product and not a cosine a pixel."""
    still = not ground.step.any()
    moments = np.arange(1 if still else frames)[:, None]
    places = (ground.start + moments * ground.step)[..., None]  # t 2 1
    pixels = (np.arange(size) + 0.5) / size
    angle = 2 * np.pi * ground.waves[:, :, None] * (pixels - places[:, None])  # t w 2 size
    across = angle[:, :, 0] + 2 * np.pi * ground.phases[:, None]
    down = angle[:, :, 1]
    rows = np.concatenate([np.cos(down), -np.sin(down)], axis=1).astype(np.float32)
    columns = np.concatenate([np.cos(across), np.sin(across)], axis=1).astype(np.float32)
    weights = np.concatenate([ground.weights, ground.weights]).astype(np.float32)
    columns = (columns[..., None] * weights[:, None]).reshape(len(moments), len(weights), -1)  # t 2w size·3
    texture = (rows.transpose(0, 2, 1) @ columns).reshape(-1, size, size, 3) + ground.mean.astype(np.float32)
    return np.repeat(texture, frames, axis=0) if still else texture


def _paint(canvas: Float32[np.ndarray, "t size size 3"], body: _Body, distance: _Distance) -> None:
    """Blend the body into the canvas, over the sides of the frame where it lies across them.

    Only a window around the body is touched; its edge is blended over one pixel, so places between pixels show.
    """
    frames, size = canvas.shape[:2]
    places = body.places(frames)[:, :, None] * size
    radius = body.radius * size
    reach = int(np.ceil(radius)) + 1
    pixels = np.floor(places).astype(np.int64) + np.arange(-reach, reach + 1)  # t 2 window
    x, y = (pixels + 0.5 - places).astype(np.float32).transpose(1, 0, 2)
    x, y = x[:, None, :], y[:, :, None]
    cover = np.clip(np.float32(radius + 0.5) - distance(x, y), 0.0, 1.0)[..., None]
    where = np.arange(frames)[:, None, None], pixels[:, 1, :, None] % size, pixels[:, 0, None, :] % size
    behind = canvas[where]
    canvas[where] = behind + cover * (_stripes(body, x / size, y / size) - behind)


def _stripes(body: _Body, x: _Pixels, y: _Pixels) -> _Pixels:
    """The body's own texture, which moves with it."""
    colours = body.colours.astype(np.float32)
    along_x, along_y, phase = (2 * np.pi * body.stripes).astype(np.float32)
    mix = 0.5 + 0.5 * np.cos(along_x * x + along_y * y + phase)[..., None]
    texture: _Pixels = colours[0] + mix * (colours[1] - colours[0])
    return texture


def _paint_bar(canvas: Float32[np.ndarray, "t size size 3"], bar: _Bar, ground: _Ground) -> None:
    frames, size = canvas.shape[:2]
    position = bar.start + np.arange(frames) * ground.step[bar.axis]
    offset = ((np.arange(size) + 0.5) / size - position[:, None] + 0.5) % 1.0 - 0.5
    cover = np.clip((bar.width / 2 - np.abs(offset)) * size + 0.5, 0.0, 1.0).astype(np.float32)
    cover = cover[:, None, :, None] if bar.axis == 0 else cover[:, :, None, None]
    canvas += cover * (bar.colour.astype(np.float32) - canvas)
