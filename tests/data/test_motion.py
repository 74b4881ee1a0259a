"""The motion benchmark: the class is in the motion and nowhere else, and a clip is a function of its seed and index."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from motionformer.data.motion import CLASSES, LEVELS, Level, MotionBenchmark, write_videos
from motionformer.models import InputSpec
from motionformer.video.transforms import eval_transform

FRAMES, SIZE = 8, 48


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small matrices: a second thread costs more than it does, above all where another process wants the core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("level", LEVELS)
def test_any_frame_is_as_likely_in_every_class(level: str) -> None:
    """The proof by construction, carried out on pixels.

    Take any scene and any frame k of it. For each other class, moving the start of the disc so that it is at the same
    place in frame k gives a scene of that class with the same frame k. The start is uniform on a torus, so the moved
    one is as likely as the first: frame k has the same distribution in every class.
    """
    benchmark = MotionBenchmark(level, "test", 8)
    for index, k in ((0, 0), (3, 3), (5, 7)):
        scene = benchmark.scene(index)
        frame = scene.render(FRAMES, SIZE)[k].astype(int)
        speed = np.linalg.norm(scene.disc.step).item()
        for label in range(len(CLASSES)):
            step = speed * np.array([np.cos(label * np.pi / 4), -np.sin(label * np.pi / 4)])
            start = (scene.disc.start + k * (scene.disc.step - step)) % 1.0
            twin = replace(scene, label=label, disc=replace(scene.disc, start=start, step=step))
            assert np.abs(twin.render(FRAMES, SIZE)[k] - frame).max() <= 1  # rounding of the place


def test_start_is_uniform_and_independent_of_everything_else() -> None:
    """The premise of that proof: χ² over classes and a 5 × 5 grid of places, in every frame."""
    benchmark = MotionBenchmark("hard", "train", 8 * 250)
    scenes = [benchmark.scene(index) for index in range(len(benchmark))]
    places = np.stack([scene.disc.places(FRAMES) for scene in scenes])
    labels = np.array([scene.label for scene in scenes])
    statistics = position_statistics(places, labels)
    # 7 · 24 degrees of freedom: mean 168, deviation 18.3; 240 is passed once in 10,000
    assert statistics.max() < 240
    # the same clips without a torus, kept inside the frame by their start: the test sees the class in their places
    starts, steps = (np.stack([getattr(scene.disc, name) for scene in scenes]) for name in ("start", "step"))
    inside = 0.45 * (starts[:, None] - 0.5) + 0.5 + (np.arange(FRAMES)[:, None] - 3.5) * 0.5 * steps[:, None]
    assert position_statistics(inside, labels)[[0, -1]].min() > 400

    others = np.array([[s.disc.radius, s.ground.step[0], s.ground.start[0], np.hypot(*s.disc.step)] for s in scenes])
    waves = np.concatenate([np.sin(2 * np.pi * places[:, 0]), np.cos(2 * np.pi * places[:, 0])], axis=1)
    correlation = np.corrcoef(others.T, waves.T)[:4, 4:]
    assert np.abs(correlation).max() < 4 / len(scenes) ** 0.5


def position_statistics(places: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For every frame, how far the places of the classes are from those of all classes together."""
    cells = np.floor(places * 5).astype(int) @ np.array([5, 1])
    counts = np.array(
        [[np.bincount(cells[labels == k, t], minlength=25) for t in range(FRAMES)] for k in range(len(CLASSES))]
    )
    expected = counts.mean(axis=0)
    return ((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum(axis=(0, 2))


def cross_spectrum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """How two pictures are shifted against each other, as features: normalised products of Fourier coefficients."""
    a, b = (torch.fft.fft2(frame.float().mean(dim=-1))[:, :5, :9] for frame in (first, second))
    product = a.conj() * b
    product = product / (product.abs() + 1.0)
    return torch.view_as_real(product).flatten(1)


def ridge_accuracy(features: torch.Tensor, labels: torch.Tensor) -> float:
    """A linear classifier learnt on the first four fifths, judged on the rest."""
    features = torch.cat([features, torch.ones(len(features), 1)], dim=1).double()
    split = len(features) * 4 // 5
    x, y = features[:split], torch.nn.functional.one_hot(labels[:split], 8).double()
    weights = torch.linalg.solve(x.T @ x + 10.0 * torch.eye(x.shape[1]), x.T @ y)
    return ((features[split:] @ weights).argmax(dim=1) == labels[split:]).double().mean().item()


@pytest.mark.usefixtures("one_thread")
def test_single_frames_are_guessed_at_chance_and_two_are_not() -> None:
    benchmark = MotionBenchmark("easy", "train", 1600)
    clips = [benchmark[index] for index in range(len(benchmark))]
    frames = torch.stack([clip.frames for clip in clips])
    labels = torch.tensor([clip.label for clip in clips])
    bound = 1 / 8 + 4 * (1 / 8 * 7 / 8 / 320) ** 0.5  # chance, and four deviations of 320 guesses
    for k in (0, 3, 7):
        frame = frames[:, k]
        small = torch.nn.functional.avg_pool2d(frame.permute(0, 3, 1, 2).float() / 255, 4).flatten(1)
        assert ridge_accuracy(small, labels) < bound
        assert ridge_accuracy(cross_spectrum(frame, frame), labels) < bound
    # a network that could learn a place or an edge, on the first frame, where a disc about to leave would show
    assert network_accuracy(frames[:, 0], labels) < bound
    # the same linear classifier, given a second frame, finds the class: it does have the power to
    assert ridge_accuracy(cross_spectrum(frames[:, 0], frames[:, 3]), labels) > 0.6


def network_accuracy(frames: torch.Tensor, labels: torch.Tensor) -> float:
    torch.manual_seed(0)
    pixels = torch.nn.functional.avg_pool2d(frames.permute(0, 3, 1, 2).float() / 127.5 - 1, 3).flatten(1)
    split = len(pixels) * 4 // 5
    model = torch.nn.Sequential(torch.nn.Linear(pixels.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(4):
        for batch in torch.randperm(split).split(64):
            loss = torch.nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return (model(pixels[split:]).argmax(dim=1) == labels[split:]).float().mean().item()


@pytest.mark.parametrize("level", LEVELS)
def test_the_path_says_the_class_and_lies_on_the_disc(level: str) -> None:
    benchmark = MotionBenchmark(level, "val", 32)
    plain = replace(LEVELS[level], num_distractors=0, num_occluders=0, ground_contrast=0.0)
    bare = MotionBenchmark(plain, "val", 32)
    for index in range(32):
        clip = benchmark[index]
        assert clip.path.shape == (FRAMES, 2)
        assert 0 <= clip.path.min() <= clip.path.max() < SIZE
        step = (clip.path[1:] - clip.path[:-1] + SIZE / 2) % SIZE - SIZE / 2
        angle = torch.atan2(-step[:, 1], step[:, 0])
        assert ((angle / (torch.pi / 4)).round() % 8 == clip.label).all()
        # on an even ground, all that differs from it lies within the disc's radius of the path
        scene = bare.scene(index)
        pixels = scene.render(FRAMES, SIZE).astype(int)
        changed = np.argwhere((np.abs(pixels - np.rint(scene.ground.mean * 255)) > 2).any(axis=-1))
        offset = (changed[:, [2, 1]] + 0.5 - scene.disc_path(FRAMES, SIZE)[changed[:, 0]] + SIZE / 2) % SIZE - SIZE / 2
        distance = np.hypot(*offset.T)
        assert distance.max() <= scene.disc.radius * SIZE + 0.5
        assert len(changed) > 0.6 * FRAMES * np.pi * (scene.disc.radius * SIZE) ** 2


def test_rendering_is_the_slow_loop() -> None:
    """Every pixel of a hard scene, once more, one at a time and without windows or matrix products."""
    scene = MotionBenchmark("hard", "val", 8).scene(2)
    size, t = 24, 5
    fast = scene.render(8, size)[t].astype(float)

    def near(value: float) -> float:
        return (value + 0.5) % 1.0 - 0.5

    def over(colour: np.ndarray, cover: float, new: np.ndarray) -> np.ndarray:
        return colour + min(max(cover, 0.0), 1.0) * (new - colour)

    ground = scene.ground
    for row in range(size):
        for column in range(size):
            point = (np.array([column, row]) + 0.5) / size
            phase = ground.waves @ (point - ground.start - t * ground.step) + ground.phases
            colour = np.cos(2 * np.pi * phase) @ ground.weights + ground.mean
            for body in (*scene.distractors, scene.disc):
                x, y = (near(v) for v in point - body.start - t * body.step)
                distance = np.hypot(x, y) if body is scene.disc else max(abs(x), abs(y))
                mix = 0.5 + 0.5 * np.cos(2 * np.pi * (body.stripes @ np.array([x, y, 1.0])))
                texture = body.colours[0] + mix * (body.colours[1] - body.colours[0])
                colour = over(colour, (body.radius - distance) * size + 0.5, texture)
            for bar in scene.bars:
                away = abs(near(point[bar.axis] - bar.start - t * ground.step[bar.axis]))
                colour = over(colour, (bar.width / 2 - away) * size + 0.5, bar.colour)
            assert np.abs(fast[row, column] - colour * 255).max() < 0.51


@pytest.mark.parametrize("level", [*LEVELS.values(), Level(ground_contrast=0.7)], ids=[*LEVELS, "strongest"])
def test_pixels_stay_in_range(level: Level) -> None:
    """A sum that leaves 0 … 255 would wrap around in bytes."""
    benchmark = MotionBenchmark(level, "val", 64, size=16)
    for index in range(64):
        scene = benchmark.scene(index)
        bound = np.abs(scene.ground.weights).sum(axis=0)
        assert (scene.ground.mean - bound).min() >= 0.0
        assert (scene.ground.mean + bound).max() <= 1.0


def test_a_clip_depends_on_seed_split_and_index_only() -> None:
    clips = MotionBenchmark("hard", "val", 16, seed=3)
    again = MotionBenchmark("hard", "val", 4000, seed=3)
    assert all(torch.equal(clips[i].frames, again[i].frames) for i in (15, 0, 7))
    for other in (MotionBenchmark("hard", "test", 16, seed=3), MotionBenchmark("hard", "val", 16, seed=4)):
        assert not torch.equal(clips[0].frames, other[0].frames)
        assert clips[0].label == other[0].label
    longer = MotionBenchmark("hard", "val", 16, frames=12, seed=3)[5]
    assert torch.equal(longer.frames[:8], clips[5].frames)
    assert torch.equal(clips[-1].frames, clips[15].frames)
    state = torch.get_rng_state(), np.random.get_state()[1]
    _ = clips[1]
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.array_equal(np.random.get_state()[1], state[1])


def test_workers_give_the_same_clips() -> None:
    clips = MotionBenchmark("easy", "train", 24)
    plain, parallel = (list(DataLoader(clips, 8, num_workers=workers)) for workers in (0, 2))
    for (a, label_a, path_a), (b, label_b, path_b) in zip(plain, parallel, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(path_a, path_b)
        assert label_a.tolist() == label_b.tolist() == list(range(8))


def test_a_stride_leaves_frames_out() -> None:
    sparse = MotionBenchmark("hard", "val", 8, frames=4, stride=3)[5]
    dense = MotionBenchmark("hard", "val", 8, frames=10)[5]
    assert torch.equal(sparse.frames, dense.frames[::3])
    assert torch.equal(sparse.path, dense.path[::3])
    with pytest.raises(ValueError, match="0 apart"):
        MotionBenchmark("easy", stride=0)


def test_pairs_with_the_transforms() -> None:
    clip = MotionBenchmark("easy")[0]
    pixels = eval_transform(InputSpec(frames=8, height=48, width=48))(clip.frames)
    torch.testing.assert_close(pixels, clip.frames.permute(3, 0, 1, 2) / 127.5 - 1)


def test_writes_videos_that_hold_the_clips(tmp_path: Path) -> None:
    paths = write_videos(tmp_path / "set of videos", "hard", 9, split="val", frames=6, size=96, seed=1)
    about = json.loads(paths.read_text())
    clips = MotionBenchmark("hard", "val", 9, frames=6, size=96, seed=1)
    assert sorted(about["videos"]) == sorted(
        str(file.relative_to(paths.parent)) for file in paths.parent.glob("*/*.mp4")
    )
    assert {folder.name for folder in paths.parent.iterdir() if folder.is_dir()} == set(CLASSES)
    for index, clip in enumerate(clips[i] for i in range(9)):
        name = f"{CLASSES[clip.label]}/{index:05d}.mp4"
        assert about["videos"][name] == {"class": CLASSES[clip.label], "path": clip.path.tolist()}
        with av.open(str(paths.parent / name)) as container:
            decoded = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
        error = np.abs(decoded.astype(float) - clip.frames.numpy())
        assert error.mean() < 4.0  # of 255; what is lost is the fine colour of 4:2:0
        assert np.abs((decoded - clip.frames.numpy().astype(float)).mean(axis=-1)).mean() < 2.5
    with pytest.raises(FileExistsError, match="not empty"):
        write_videos(paths.parent, "easy", 1)


def test_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="no level 'harder'; there are easy, medium, hard"):
        MotionBenchmark("harder")
    with pytest.raises(ValueError, match="frame 16 px or more"):
        MotionBenchmark(size=8)
    with pytest.raises(IndexError):
        MotionBenchmark(num_clips=3)[3]
    with pytest.raises(ValueError, match=r"above 0\.3"):
        Level(radius=(0.1, 0.5))
    with pytest.raises(ValueError, match="where pixels stay in range"):
        Level(ground_contrast=0.9)
    with pytest.raises(ValueError, match="even sides"):
        write_videos("nowhere", size=47)
