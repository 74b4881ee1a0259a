"""Training transforms of the released protocol, against figures of the authors' code (tests/parity)."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.parity_files import PARITY
from torch import Generator, Tensor

from motionformer.models import InputSpec
from motionformer.video.transforms import (
    ColourJitter,
    Normalise,
    RandAugment,
    RandomCrop,
    RandomResizedCrop,
    ReleasedColourJitter,
    ShortSideJitter,
    train_transform,
)
from motionformer.video.transforms.colour import _change_colours
from motionformer.video.transforms.geometry import _released_box, _released_offset, _released_size, _resize_plain
from motionformer.video.transforms.randaugment import RELEASED, _change, operation_names

FIGURES: dict[str, Any] = json.loads((PARITY / "released_training.json").read_text())
PICTURES = load_file(PARITY / "augmentation_ops.safetensors")
RELEASED_SPEC = InputSpec(height=48, width=48, protocol="released")


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def frames(count: int = 3, height: int = 60, width: int = 81) -> Tensor:
    return torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8, generator=seeded(0))


@pytest.mark.parametrize("name", FIGURES["op_pictures"])
def test_operations_make_the_recorded_pictures(name: str) -> None:
    """At level 10, on both frames of a clip; exactly, but for rounding where pixels are moved."""
    operation, *how = name.split(".")
    clip = PICTURES["image"].permute(2, 0, 1)[:, None].repeat(1, 2, 1, 1)
    changed = _change(clip, operation, -1.0 if "minus" in how else 1.0, cubic="bicubic" in how)
    off = (changed.int() - PICTURES[name].permute(2, 0, 1)[:, None].int()).abs()
    if len(how) < 2:
        assert off.max() == 0
    else:
        assert off.max() <= 1
        assert (off > 0).float().mean() < 0.002


def test_moved_pixels_of_an_even_area_stay_even() -> None:
    clip = torch.full((3, 2, 40, 300), 201, dtype=torch.uint8)
    for cubic in (False, True):
        for name in ("Rotate", "ShearX", "ShearY", "TranslateXRel"):
            assert set(_change(clip, name, 0.77, cubic=cubic).unique().tolist()) == {128, 201}


def test_posterising_to_no_bits_is_black() -> None:
    clip = PICTURES["image"].permute(2, 0, 1)[:, None]
    assert _change(clip, "PosterizeIncreasing", 1.0).max() == 0
    assert torch.equal(_change(clip, "PosterizeIncreasing", 0.5), clip & 0b11000000)


def test_arguments_at_every_recorded_level() -> None:
    assert len(RELEASED) == 15
    for name, levels in FIGURES["levels"].items():
        for level, (plus, minus) in levels.items():
            for sign, expected in ((1, plus), (-1, minus)):
                assert RELEASED[name].argument(sign * int(level) / 10) == pytest.approx(expected[0], abs=1e-12)


def test_one_coin_one_sign_and_full_strength_a_clip() -> None:
    step = RandAugment.released()
    assert (step.num_ops, step.magnitude, step.spread, step.probability) == (2, 30.0, 0.0, 0.5)
    step._names = ("BrightnessIncreasing",)
    clip = torch.full((3, 2, 4, 4), 20, dtype=torch.uint8)
    values = [step(clip, seeded(seed)).unique().tolist() for seed in range(400)]
    kinds = {value[0]: values.count(value) for value in values if len(value) == 1}
    assert set(kinds) == {20, 72, 0}, "nothing, ×1.9 twice, or ×0.1 twice; never one of each"
    assert 160 < kinds[20] < 240
    assert 60 < kinds[72] < 140


def test_operations_and_interpolations_are_all_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []
    where = "motionformer.video.transforms.randaugment._change"
    monkeypatch.setattr(where, lambda clip, name, strength, *, cubic: seen.append((name, cubic)) or clip)
    clip, generator = torch.zeros(3, 1, 4, 4, dtype=torch.uint8), seeded(0)
    for _ in range(300):
        RandAugment.released()(clip, generator)
    assert {name for name, _ in seen} == set(RELEASED) == set(operation_names("released"))
    assert {cubic for _, cubic in seen} == {True, False}
    assert all(first[1] == second[1] for first, second in zip(seen[::2], seen[1::2], strict=True))


def test_bgr_takes_the_last_channel_for_red() -> None:
    clip = PICTURES["image"].permute(2, 0, 1)[:, None]
    options: dict[str, Any] = {"operations": ["ColorIncreasing"], "same_sign": True}
    rgb = RandAugment(1, 30.0, channels="RGB", **options)(clip, seeded(1))
    bgr = RandAugment(1, 30.0, channels="BGR", **options)(clip, seeded(1))
    assert torch.equal(bgr, RandAugment(1, 30.0, **options)(clip.flip(0), seeded(1)).flip(0))
    assert not torch.equal(bgr, rgb)


def test_operations_by_name() -> None:
    assert operation_names(["rotate", "Invert"]) == ("rotate", "Invert")
    assert operation_names(["standard"]) == operation_names("standard") != operation_names("released")
    clip = frames().permute(3, 0, 1, 2)
    assert torch.equal(RandAugment(1, operations=["Invert"])(clip, seeded(0)), 255 - clip)
    with pytest.raises(ValueError, match=r"no operation 'Rotat'.*`released`: AutoContrast"):
        RandAugment(operations=["Rotat"])
    with pytest.raises(ValueError, match="probability 0 to 1"):
        RandAugment(probability=1.5)


@pytest.mark.parametrize("case", FIGURES["colour_cases"], ids=lambda case: case["tensor"])
def test_colours_as_recorded(case: dict[str, Any]) -> None:
    clip = PICTURES["colour.clip_tchw"].transpose(0, 1)
    changed = _change_colours(clip, list(zip(case["order"], case["alpha_in_that_order"], strict=True)))
    torch.testing.assert_close(changed, PICTURES[case["tensor"]].transpose(0, 1), atol=1e-6, rtol=0)


def test_colour_jitter_changes_four_clips_of_five_in_any_order() -> None:
    clip = PICTURES["colour.clip_tchw"].transpose(0, 1)
    changed = [ReleasedColourJitter()(clip, seeded(seed)) for seed in range(500)]
    assert 370 < sum(not torch.equal(one, clip) for one in changed) < 430
    assert max(one.abs().max().item() for one in changed) > clip.abs().max() * 1.2, "nothing is clamped"
    assert torch.equal(ReleasedColourJitter(0.0)(clip, seeded(0)), clip)
    with pytest.raises(TypeError, match="normalised floats"):
        ReleasedColourJitter()((clip * 255).to(torch.uint8), seeded(0))


def test_jittered_crops_are_where_the_release_takes_them() -> None:
    assert len(FIGURES["train_jitter"]) == 96
    for row in FIGURES["train_jitter"]:
        side = ShortSideJitter(*row["jitter"], inverse=row["inverse"]).side(row["u_scale"])
        size = _released_size(row["height"], row["width"], side)
        assert list(size) == row["resized"]
        down, across = (length - row["crop"] for length in size)
        assert _released_offset(down, row["u_offset_y"]) == row["offset_y"]
        assert _released_offset(across, row["u_offset_x"]) == row["offset_x"]


def test_sizes_are_rounded_as_in_the_release() -> None:
    """The quotient first: at 42 of the 114 recorded sizes that loses a pixel; three of them."""
    assert [_released_size(448, 460, 224), _released_size(224, 300, 336), _released_size(1955, 238, 224)] == [
        (224, 229),
        (336, 449),
        (1839, 224),
    ]
    assert _released_size(224, 301, 224) == (224, 301)


def test_resized_crops_are_where_the_release_takes_them() -> None:
    assert len(FIGURES["train_random_resized_crop"]) == 27
    for row in FIGURES["train_random_resized_crop"]:
        box = _released_box(
            (row["height"], row["width"]), tuple(row["scale"]), tuple(row["ratio"]), iter(row["u_draws"])
        )
        assert box == (row["top"], row["left"], (row["crop_height"], row["crop_width"]))


def test_the_steps_use_these_rules() -> None:
    clip = torch.arange(20.0).view(1, 1, 4, 5).expand(3, 1, 4, 5)
    crop, generator = RandomCrop(3, released=True), seeded(0)
    assert {crop(clip, generator)[0, 0, 0, 0].item() for _ in range(100)} == {0.0, 1.0}, "the last is never drawn"
    assert torch.equal(RandomCrop((4, 5), released=True)(clip, generator), clip)

    again = seeded(5)
    draws = iter([torch.rand((), generator=again).item() for _ in range(40)])
    picture = torch.rand(3, 2, 50, 70, generator=again)
    top, left, (height, width) = _released_box((50, 70), (0.08, 1.0), (3 / 4, 4 / 3), draws)
    expected = _resize_plain(picture[:, :, top : top + height, left : left + width], (16, 16))
    assert torch.equal(RandomResizedCrop(16, released=True)(picture, seeded(5)), expected)

    side = ShortSideJitter(20, 30).side(torch.rand((), generator=seeded(7)).item())
    shrunk = ShortSideJitter(20, 30, released=True)(picture, seeded(7))
    assert torch.equal(shrunk, _resize_plain(picture, _released_size(50, 70, side)))
    with pytest.raises(ValueError, match="square crops; not 16 × 32"):
        ShortSideJitter(20, 30, shape=(16, 32), released=True)


def test_plain_bilinear_skips_pixels_and_leaves_equal_sizes_alone() -> None:
    row = torch.arange(8.0).expand(3, 1, 8, 8)
    assert _resize_plain(row, (2, 2))[0, 0, 0].tolist() == [1.5, 5.5]
    stripes = torch.zeros(3, 1, 8, 8)
    stripes[..., 1::4] = 1.0
    assert _resize_plain(stripes, (2, 2)).unique().tolist() == [0.5], "an average of 4 would be 0.25"
    assert _resize_plain(row, (8, 8)) is row


@pytest.mark.parametrize("crop_area", [None, (0.2, 1.0)])
def test_the_released_order(crop_area: tuple[float, float] | None) -> None:
    steps = train_transform(
        RELEASED_SPEC, crop_area=crop_area, rand_augment=RandAugment.released(), colour=ReleasedColourJitter()
    ).steps
    geometry = ["ShortSideJitter", "RandomCrop"] if crop_area is None else ["RandomResizedCrop"]
    order = ["FromFrames", "RandAugment", *geometry, "HorizontalFlip", "Normalise", "ReleasedColourJitter"]
    assert [type(step).__name__ for step in steps] == order
    assert [step.released for step in steps if type(step).__name__ in geometry] == [True] * len(geometry)  # type: ignore[attr-defined]

    uniform = train_transform(InputSpec(height=48, width=48), crop_area=crop_area, rand_augment=RandAugment())
    assert [type(step).__name__ for step in uniform.steps[1:]] == [
        *geometry,
        "HorizontalFlip",
        "RandAugment",
        "Normalise",
    ]
    assert not any(getattr(step, "released", False) is True for step in uniform.steps)


def test_a_released_clip_by_hand() -> None:
    """In the release's own order: normalised, resized, cut, mirrored, recoloured; the draws in that order too."""
    clip = train_transform(RELEASED_SPEC, jitter=(50, 70), colour=ReleasedColourJitter(0.4, 1.0))(frames(), seeded(3))
    generator = seeded(3)
    side, down, across, mirror = (torch.rand((), generator=generator).item() for _ in range(4))
    size = _released_size(60, 81, ShortSideJitter(50, 70).side(side))
    whole = _resize_plain(Normalise()(frames().permute(3, 0, 1, 2)), size)
    top, left = _released_offset(size[0] - 48, down), _released_offset(size[1] - 48, across)
    cut = whole[:, :, top : top + 48, left : left + 48]
    expected = ReleasedColourJitter(0.4, 1.0)(cut.flip(-1) if mirror < 0.5 else cut, generator)
    torch.testing.assert_close(clip, expected)


def test_either_colour_jitter_and_erasing_go_with_either_protocol() -> None:
    for spec in (RELEASED_SPEC, InputSpec(height=48, width=48)):
        for colour in (ColourJitter(), ReleasedColourJitter()):
            steps = train_transform(spec, colour=colour, erasing=1.0).steps
            names = [type(step).__name__ for step in steps]
            after = names.index(type(colour).__name__) > names.index("Normalise")
            assert after == isinstance(colour, ReleasedColourJitter)
            assert train_transform(spec, colour=colour, erasing=1.0)(frames(), seeded(0)).shape == (3, 3, 48, 48)
