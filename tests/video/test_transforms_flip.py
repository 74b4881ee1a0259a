"""Mirroring and labels: twins are found in names as they are written, and a missing twin turns mirroring off."""

import pytest
import torch

from motionformer.models import InputSpec
from motionformer.video.transforms import HorizontalFlip, LabelAwareFlip, find_twins, train_transform


@pytest.mark.parametrize(
    ("names", "twins", "without"),
    [
        (["left_swipe", "right_swipe", "stop"], (1, 0, 2), ()),
        (["Turning left", "Stopping", "Turning right"], (2, 1, 0), ()),
        (["SwipeLeft", "SwipeRight"], (1, 0), ()),
        (["Pushing something from left to right", "Pushing something from right to left"], (1, 0), ()),
        (
            ["right", "up-right", "up", "up-left", "left", "down-left", "down", "down-right"],
            (4, 3, 2, 1, 0, 7, 6, 5),
            (),
        ),
        (["Turning Hand Clockwise", "Turning Hand Counter-clockwise"], (1, 0), ()),
        (["turn clockwise", "turn anticlockwise"], (1, 0), ()),
        (["turn_cw", "turn_ccw"], (1, 0), ()),
        (["links", "rechts", "à gauche", "à droite", "izquierda", "derecha"], (1, 0, 3, 2, 5, 4), ()),
        (["follow links", "read a page"], (0, 1), ()),  # a side in German only
        (["left_swipe", "stop"], (0, 1), ("left_swipe",)),
        (["looking left and right", "stop"], (0, 1), ("looking left and right",)),
        (["bright light", "copyright", "leftover soup", "cleft"], (0, 1, 2, 3), ()),  # no sides in these
    ],
)
def test_twins_are_found_in_names(names: list[str], twins: tuple[int, ...], without: tuple[str, ...]) -> None:
    assert find_twins(names) == (twins, without)


def test_label_follows_the_picture() -> None:
    clip = torch.arange(4).expand(3, 2, 5, 4)
    flip, generator = LabelAwareFlip(["left", "stop", "right"]), torch.Generator().manual_seed(0)
    seen = set()
    for label in (0, 1, 2) * 20:
        changed, new = flip.with_label(clip, label, generator)
        mirrored = torch.equal(changed, clip.flip(-1))
        assert mirrored or torch.equal(changed, clip)
        assert new == ({0: 2, 1: 1, 2: 0}[label] if mirrored else label)
        seen.add((label, mirrored))
    assert len(seen) == 6


def test_a_missing_twin_turns_mirroring_off() -> None:
    clip = torch.arange(4).expand(3, 2, 5, 4)
    assert LabelAwareFlip(["stop", "left", "right"]).pairs == (("left", "right"),)
    flip, generator = LabelAwareFlip(["left_swipe", "stop"], 1.0), torch.Generator().manual_seed(0)
    for label in (0, 1):
        assert torch.equal(flip.with_label(clip, label, generator)[0], clip)
    assert "off" in repr(flip)
    assert "left_swipe" in repr(flip)


def test_the_pipeline_passes_the_label_through() -> None:
    spec = InputSpec(height=16, width=16)
    frames = torch.zeros(2, 16, 16, 3, dtype=torch.uint8)
    frames[:, :, :8] = 255
    step = train_transform(spec, jitter=(16, 16), flip=1.0, class_names=("left", "right"))
    clip, label = step.with_label(frames, 0, torch.Generator().manual_seed(0))
    assert label == 1
    assert clip[0, 0, 0, 0] == -1.0
    with pytest.raises(TypeError, match="with_label"):
        step(frames, torch.Generator().manual_seed(0))
    plain = train_transform(spec, flip=1.0)
    assert plain.with_label(frames, 0, torch.Generator().manual_seed(0))[1] == 0


def test_refuses_a_label_that_is_no_class() -> None:
    flip = LabelAwareFlip(["left", "right"])
    with pytest.raises(ValueError, match="label 2 is not one of the 2 classes"):
        flip.with_label(torch.zeros(3, 1, 2, 2), 2, torch.Generator())


def test_flip_happens_as_often_as_asked() -> None:
    clip = torch.arange(2).expand(3, 1, 1, 2)
    generator = torch.Generator().manual_seed(0)
    flipped = sum(HorizontalFlip(0.25)(clip, generator)[0, 0, 0, 0].item() for _ in range(2000))
    assert abs(flipped / 2000 - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
