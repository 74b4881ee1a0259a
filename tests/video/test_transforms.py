"""Every transform: one draw for all frames, repeatable from a seed, right on small cases written out by hand."""

import pickle

import pytest
import torch
from torch import Generator, Tensor

from motionformer.models import InputSpec
from motionformer.video.transforms import (
    CentreCrop,
    ColourJitter,
    FromFrames,
    HorizontalFlip,
    Normalise,
    Pipeline,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    ShortSideJitter,
    ShortSideResize,
    SideCrop,
    SwapChannels,
    Transform,
    eval_transform,
    train_transform,
)
from motionformer.video.transforms.geometry import cover

RANDOM: dict[str, Transform] = {
    "jitter": ShortSideJitter(24, 40),
    "inverse jitter": ShortSideJitter(24, 40, inverse=True),
    "crop": RandomCrop(16),
    "resized crop": RandomResizedCrop(16),
    "flip": HorizontalFlip(),
    "colour": ColourJitter(),
    "randaugment": RandAugment(3, 25.0, spread=5.0),
    "released randaugment": RandAugment.released(),
    "erasing": RandomErasing(1.0),
}
FIXED: dict[str, Transform] = {
    "resize": ShortSideResize(24),
    "centre": CentreCrop(16),
    "left": SideCrop(16, 0),
    "right": SideCrop(16, 2),
    "swap": SwapChannels(),
    "normalise": Normalise(),
}


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def picture(frames: int = 3, height: int = 33, width: int = 45, seed: int = 0) -> Tensor:
    """A clip of one smooth random picture, over and over."""
    coarse = torch.rand(1, 3, 5, 6, generator=seeded(seed))
    image = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
    return (image * 255).to(torch.uint8)[:, None].repeat(1, frames, 1, 1)


@pytest.mark.parametrize("floats", [False, True], ids=["bytes", "floats"])
@pytest.mark.parametrize("step", [*RANDOM.values(), *FIXED.values()], ids=[*RANDOM, *FIXED])
def test_a_clip_of_one_picture_stays_one_picture(step: Transform, floats: bool) -> None:
    clip = picture() / 255 if floats else picture()
    for seed in range(12):
        changed = step(clip, seeded(seed))
        assert torch.equal(changed, changed[:, :1].expand_as(changed))
        assert changed.dtype == clip.dtype or isinstance(step, Normalise)


@pytest.mark.parametrize("step", RANDOM.values(), ids=RANDOM)
def test_the_generator_decides_and_nothing_else(step: Transform) -> None:
    clip = picture()
    state = torch.get_rng_state()
    results = [step(clip, seeded(seed)) for seed in range(8)]
    assert torch.equal(torch.get_rng_state(), state), "drew from the global generator"
    for seed, result in enumerate(results):
        assert torch.equal(step(clip, seeded(seed)), result)
    assert any(r.shape != results[0].shape or not torch.equal(r, results[0]) for r in results[1:])
    with pytest.raises(ValueError, match=r"pass a torch\.Generator"):
        step(clip)


@pytest.mark.parametrize("step", [*RANDOM.values(), *FIXED.values()], ids=[*RANDOM, *FIXED])
def test_the_given_clip_is_left_alone(step: Transform) -> None:
    clip = picture()
    before = clip.clone()
    for seed in range(6):
        step(clip, seeded(seed))
    assert torch.equal(clip, before)


@pytest.mark.parametrize(
    ("have", "want", "expected"),
    [
        ((256, 340), (224, 224), (224, 297)),  # 340 · 224 / 256 = 297.5
        ((340, 256), (224, 224), (297, 224)),
        ((224, 224), (224, 224), (224, 224)),
        ((1, 1), (7, 7), (7, 7)),
        ((100, 100), (50, 80), (80, 80)),  # a wide crop from a square: the width limits
        ((100, 400), (50, 80), (50, 200)),
        ((101, 37), (48, 48), (131, 48)),
    ],
)
def test_resizing_keeps_the_shape_and_covers_the_crop(
    have: tuple[int, int], want: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert cover(have, want) == expected
    assert ShortSideResize(want)(picture(1, *have)).shape[2:] == expected


def test_bytes_and_floats_are_resized_alike() -> None:
    frames = torch.randint(0, 256, (4, 31, 47, 3), dtype=torch.uint8, generator=seeded(1))
    clip = FromFrames()(frames)
    for size in (17, 31, 60):
        as_bytes = ShortSideResize(size)(clip).float()
        as_floats = ShortSideResize(size)(clip.float())
        assert (as_bytes - as_floats).abs().max() <= 1.0  # one level: rounding in between and at the end


def test_shrinking_averages_and_does_not_skip() -> None:
    stripes = torch.zeros(3, 1, 64, 64, dtype=torch.uint8)
    stripes[..., ::2] = 200
    shrunk = ShortSideResize(16)(stripes)[..., 1:-1].float()
    assert (shrunk - 100).abs().max() <= 2


def test_jitter_draws_the_length_or_its_inverse_uniformly() -> None:
    generator = seeded(0)
    plain = torch.tensor(
        [ShortSideJitter(256, 320).side(torch.rand((), generator=generator).item()) for _ in range(4000)],
        dtype=torch.float64,
    )
    inverse = torch.tensor(
        [ShortSideJitter(256, 320, inverse=True).side(torch.rand((), generator=generator).item()) for _ in range(4000)]
    ).double()
    for sides in (plain, inverse):
        assert sides.min() == 256
        assert sides.max() == 320
    # means of a uniform length, and of one over a uniform inverse: log(b/a) · ab / (b − a); 5 standard errors
    assert abs(plain.mean() - 288.0) < 5 * 18.5 / 4000**0.5
    expected = torch.log(torch.tensor(320 / 256)).item() * 256 * 320 / 64
    assert abs(inverse.mean() - expected) < 5 * 18.5 / 4000**0.5
    assert abs(plain.mean() - expected) > 1.0  # and the test tells them apart


def test_three_crops_lie_along_the_long_side() -> None:
    wide = torch.arange(11).expand(3, 1, 5, 11)
    assert [SideCrop(5, i)(wide)[0, 0, 0, 0].item() for i in range(3)] == [0, 3, 6]
    tall = wide.transpose(2, 3)
    assert [SideCrop(5, i)(tall)[0, 0, 0, 0].item() for i in range(3)] == [0, 3, 6]
    assert CentreCrop(4)(wide)[0, 0, 0].tolist() == [4, 5, 6, 7]  # 7 / 2 rounded up
    assert torch.equal(SideCrop(5, 1)(wide), CentreCrop(5)(wide))


def test_random_crops_reach_every_place() -> None:
    clip = torch.arange(20).view(1, 1, 4, 5).expand(3, 1, 4, 5)
    generator = seeded(0)
    corners = {RandomCrop((3, 3))(clip, generator)[0, 0, 0, 0].item() for _ in range(100)}
    assert corners == {0, 1, 2, 5, 6, 7}


def test_resized_crops_have_the_area_and_shape_asked_for() -> None:
    step, generator = RandomResizedCrop(16, (0.25, 0.5), (0.5, 2.0)), seeded(0)
    for _ in range(200):
        height, width = step.draw((100, 120), generator)
        assert 0.24 < height * width / 12000 < 0.51
        assert 0.48 < width / height < 2.1
    assert step.draw((1000, 1), generator) == (2, 1)  # no rectangle fits: the largest of the narrowest shape


def test_channels_and_normalisation_by_hand() -> None:
    frames = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    step = Pipeline(FromFrames(), SwapChannels(), Normalise((0.5, 0.0, 0.2), (0.5, 1.0, 0.1)))
    assert step(frames).flatten().tolist() == pytest.approx([1.0, 0.2, -2.0], abs=1e-6)
    assert step(frames / 255).flatten().tolist() == pytest.approx([1.0, 0.2, -2.0], abs=1e-6)


def test_erasing_fills_one_rectangle_of_the_asked_area() -> None:
    clip = torch.zeros(3, 2, 40, 50)
    for seed in range(20):
        erased = (RandomErasing(1.0, (0.1, 0.2))(clip, seeded(seed))[:, 0] > 0).any(dim=0)
        rows, columns = erased.any(dim=1).sum().item(), erased.any(dim=0).sum().item()
        assert erased.sum() == rows * columns
        assert 0.09 < rows * columns / 2000 < 0.21
    assert torch.equal(RandomErasing(0.0)(clip, seeded(0)), clip)


def test_published_pipelines() -> None:
    frames = torch.randint(0, 256, (4, 60, 81, 3), dtype=torch.uint8, generator=seeded(0))
    spec = InputSpec(height=48, width=48)
    crops = [eval_transform(spec, crop)(frames) for crop in (0, 1, 2)]
    assert all(crop.shape == (3, 4, 48, 48) and crop.dtype == torch.float32 for crop in crops)
    assert not torch.equal(crops[0], crops[2])
    assert torch.equal(eval_transform(spec)(frames), crops[1])
    bgr = eval_transform(InputSpec(height=48, width=48, channels="BGR"))(frames)
    assert torch.equal(bgr, crops[1].flip(0))
    train = train_transform(spec, colour=ColourJitter(), rand_augment=RandAugment(), erasing=0.5)
    assert train(frames, seeded(0)).shape == (3, 4, 48, 48)
    assert repr(train_transform(InputSpec())).splitlines()[2].strip() == (
        "ShortSideJitter(low=256, high=320, inverse=False, shape=(224, 224), released=False)"
    )
    high_resolution = repr(train_transform(InputSpec(height=336, width=336), flip=0.0))
    assert "low=384, high=480" in high_resolution
    assert "Flip" not in high_resolution


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 3), (2, 3, 501), (5, 49, 51)])
@pytest.mark.parametrize("size", [(16, 16), (24, 40)])
def test_any_frame_becomes_the_size_asked_for(shape: tuple[int, int, int], size: tuple[int, int]) -> None:
    frames = torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, generator=seeded(0))
    spec = InputSpec(height=size[0], width=size[1])
    steps = [eval_transform(spec), eval_transform(spec, 2), eval_transform(spec, short_side=32)]
    steps += [train_transform(spec, rand_augment=RandAugment(4, 30.0), colour=ColourJitter(), erasing=1.0)]
    steps += [train_transform(spec, crop_area=(0.3, 1.0), inverse_jitter=True)]
    for step in steps:
        for seed in range(5):
            clip = step(frames, seeded(seed))
            assert clip.shape == (3, shape[0], *size)
            assert clip.abs().max() <= 1.0


def test_a_pipeline_goes_to_another_process_and_works_there() -> None:
    frames = torch.randint(0, 256, (2, 20, 30, 3), dtype=torch.uint8, generator=seeded(0))
    spec = InputSpec(height=16, width=16)
    step = train_transform(spec, colour=ColourJitter(), rand_augment=RandAugment(), erasing=0.5)
    copy = pickle.loads(pickle.dumps(step))  # as loader workers get it
    assert torch.equal(copy(frames, seeded(3)), step(frames, seeded(3)))


def test_refuses_what_cannot_work() -> None:
    with pytest.raises(ValueError, match="16 × 16 does not fit into frames of 8 × 9"):
        CentreCrop(16)(picture(1, 8, 9))
    with pytest.raises(ValueError, match="16 × 16 does not fit into frames of 8 × 40"):
        CentreCrop(16)(picture(1, 8, 40))
    with pytest.raises(ValueError, match="three crops"):
        SideCrop(16, 3)
    with pytest.raises(ValueError, match="in order"):
        ShortSideJitter(320, 256)
