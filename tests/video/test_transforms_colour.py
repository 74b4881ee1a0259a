"""Colour changes against kornia, which computes them one by one, and RandAugment's operations by hand."""

import pytest
import torch
from torch import Tensor

from motionformer.video.transforms import ColourJitter, RandAugment
from motionformer.video.transforms.colour import ColourMap, mean_colour
from motionformer.video.transforms.randaugment import (
    OPERATIONS,
    _equalise,
    _posterise,
    _rotation,
    _sharpen,
    _solarise,
    _stretch,
    _warp,
)

enhance = pytest.importorskip("kornia.enhance")


def recolour(clip: Tensor, change: ColourMap) -> Tensor:
    return change.apply(clip)


def floats(*shape: int) -> Tensor:
    return torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))


def random_bytes(*shape: int) -> Tensor:
    return torch.randint(0, 256, (3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.7])
def test_factors_are_those_of_kornia(factor: float) -> None:
    clip = floats(2, 9, 7)
    frames = clip.transpose(0, 1)
    expected = enhance.adjust_brightness_accumulative(frames, factor).transpose(0, 1)
    torch.testing.assert_close(recolour(clip, ColourMap.brightness(factor)), expected)
    expected = enhance.adjust_saturation_with_gray_subtraction(frames, factor).transpose(0, 1)
    torch.testing.assert_close(recolour(clip, ColourMap.saturation(factor)), expected, atol=1e-5, rtol=0)
    one_image = clip.reshape(1, 3, -1, 7)  # a clip as one tall picture has one mean, as ours
    expected = enhance.adjust_contrast_with_mean_subtraction(one_image, factor).view(clip.shape)
    changed = recolour(clip, ColourMap.contrast(factor, mean_colour(clip)))
    torch.testing.assert_close(changed, expected, atol=1e-5, rtol=0)


def test_hue_turns_colours_and_keeps_grey_and_brightness() -> None:
    grey = torch.full((3, 1, 1, 1), 0.4)
    torch.testing.assert_close(recolour(grey, ColourMap.hue(0.3)), grey, atol=1e-3, rtol=0)
    muted = 0.5 + 0.1 * (floats(1, 8, 8) - 0.5)  # far from the bounds, where nothing is clamped
    turned = recolour(muted, ColourMap.hue(0.37))
    weights = torch.tensor((0.299, 0.587, 0.114)).view(3, 1, 1, 1)
    torch.testing.assert_close((turned * weights).sum(0), (muted * weights).sum(0), atol=1e-5, rtol=0)
    assert (turned - muted).abs().max() > 0.02
    torch.testing.assert_close(recolour(turned, ColourMap.hue(-0.37)), muted, atol=1e-5, rtol=0)
    red = torch.tensor([0.7, 0.5, 0.5]).view(3, 1, 1, 1)
    third = recolour(red, ColourMap.hue(1 / 3)).flatten()
    assert third.argmax() in (1, 2), "a third of the circle away from red is green or blue"


def test_jitter_is_the_four_changes_one_after_the_other() -> None:
    clip = 0.5 + 0.2 * (floats(3, 6, 5) - 0.5)
    chain = ColourMap(torch.eye(3), torch.zeros(3))
    step_by_step = clip
    for change in (ColourMap.saturation(1.3), ColourMap.brightness(0.9), ColourMap.hue(0.05)):
        chain = change.after(chain)
        step_by_step = recolour(step_by_step, change)
    last = ColourMap.contrast(1.2, chain.colour(mean_colour(clip)))
    step_by_step = recolour(step_by_step, ColourMap.contrast(1.2, mean_colour(step_by_step)))
    torch.testing.assert_close(recolour(clip, last.after(chain)), step_by_step, atol=1e-5, rtol=0)


def test_jitter_of_nothing_changes_nothing() -> None:
    clip = random_bytes(2, 6, 5)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(ColourJitter(0.0, 0.0, 0.0, 0.0)(clip, generator), clip)
    assert torch.equal(ColourJitter(probability=0.0)(clip, generator), clip)
    changed = ColourJitter()(clip, generator)
    assert (changed.float() - clip.float()).abs().mean() > 2.0


def test_tables_by_hand() -> None:
    clip = torch.tensor([10, 20, 20, 250], dtype=torch.uint8).expand(3, 1, 1, 4)
    assert _stretch(clip)[0].flatten().tolist() == [0, 11, 11, 255]  # 10 / 240 · 255 = 10.6
    assert _solarise(clip, 0.5)[0].flatten().tolist() == [10, 20, 20, 5]
    assert _solarise(clip, -0.5)[0].flatten().tolist() == [10, 20, 20, 5]
    assert _posterise(clip, 1.0)[0].flatten().tolist() == [0, 16, 16, 240]
    assert _posterise(clip, 0.0)[0].flatten().tolist() == [10, 20, 20, 250]
    assert _equalise(clip)[0].flatten().tolist() == [0, 85, 85, 255]  # 0, 1 and 3 of the three darker pixels
    flat = torch.full((3, 2, 4, 4), 7, dtype=torch.uint8)
    assert torch.equal(_equalise(flat), flat)
    assert torch.equal(_stretch(flat), flat)


def test_equalising_makes_all_brightnesses_alike() -> None:
    # no single value holds an eighth of the pixels: a table cannot split one
    dark = (floats(2, 64, 64) ** 2 * 255).to(torch.uint8)
    shares = torch.histc(_equalise(dark)[0].float(), 8, 0, 255) / dark[0].numel()
    before = torch.histc(dark[0].float(), 8, 0, 255) / dark[0].numel()
    assert (shares - 1 / 8).abs().max() < 0.03
    assert (before - 1 / 8).abs().max() > 0.2


def test_warps_by_hand() -> None:
    clip = floats(2, 6, 8)
    quarter = _warp(clip[..., :6], _rotation(90.0))
    torch.testing.assert_close(quarter, clip[..., :6].rot90(1, (2, 3)), atol=1e-5, rtol=0)
    moved = _warp(clip, shift=(2 / 8, 0.0))
    torch.testing.assert_close(moved[..., :6], clip[..., 2:], atol=1e-5, rtol=0)
    torch.testing.assert_close(moved[..., 6:], torch.full_like(moved[..., 6:], 0.5), atol=1e-5, rtol=0)
    # a row half a pixel above the centre is sheared by half a pixel for k = 1; one 2.5 below by 2.5
    sheared = _warp(clip, ((1.0, 2.0), (0.0, 1.0)))
    torch.testing.assert_close(sheared[:, :, 3, :7], clip[:, :, 3, 1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(sheared[:, :, 2, 1:], clip[:, :, 2, :7], atol=1e-5, rtol=0)


def test_sharpness_by_hand() -> None:
    dot = torch.zeros(3, 1, 5, 5)
    dot[..., 2, 2] = 1.0
    smooth = _sharpen(dot, 0.0)
    assert smooth[0, 0, 2, 2].item() == pytest.approx(5 / 13)
    assert smooth[0, 0, 1, 2].item() == pytest.approx(1 / 13)
    assert torch.equal(_sharpen(dot, 1.0), dot)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_grows_with_its_strength(name: str) -> None:
    smooth = torch.nn.functional.interpolate(floats(4, 6)[None], (32, 40), mode="bilinear")[0]
    clip = (40 + 150 * smooth[:, None]).to(torch.uint8).repeat(1, 2, 1, 1)
    change = OPERATIONS[name]
    sizes = [(change(clip, s).float() - clip.float()).abs().mean().item() for s in (0.0, 0.4, 0.8)]
    if name == "identity":
        assert sizes == [0.0, 0.0, 0.0]
    elif name in ("stretch", "equalise"):
        assert sizes[0] == sizes[2] > 1.0
    else:
        assert sizes[0] <= 0.01 < sizes[1] < sizes[2]


def test_randaugment_draws_all_operations_and_both_signs() -> None:
    step, generator = RandAugment(1, 15.0, spread=3.0), torch.Generator().manual_seed(0)
    strengths = torch.tensor([step.draw_strength(generator) for _ in range(500)])
    assert 200 < (strengths > 0).sum() < 300
    assert abs(strengths.abs().mean() - 0.5) < 0.03
    assert RandAugment(0)(random_bytes(1, 4, 4), generator).shape == (3, 1, 4, 4)
    with pytest.raises(ValueError, match=r"of hue 0 to 0\.5"):
        ColourJitter(hue=0.6)
    with pytest.raises(ValueError, match="magnitude 0 to 30"):
        RandAugment(2, 31.0)
