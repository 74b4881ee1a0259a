"""What the head sees: the class token, and the moments that say where things go."""

import pytest
import torch
from torch import Tensor

from motionformer import create_model
from motionformer.models.head import _GAIN, ClassReadout, ConcatReadout, MotionReadout, PathReadout, _motion_weights


def spot_tokens(grid: tuple[int, int, int], velocity: tuple[float, float], p: int = 1) -> Tensor:
    """One channel that is 1 around a spot moving through the middle; places run from 0 to 1, time from -1 to 1."""
    f, h, w = grid
    time = torch.linspace(-1, 1, f)[:, None, None]
    row = (torch.arange(h) + 0.5)[None, :, None] / h - 0.5 - velocity[0] * time
    column = (torch.arange(w) + 0.5)[None, None, :] / w - 0.5 - velocity[1] * time
    spot = torch.exp(-(row**2 + column**2) / 0.05)
    return torch.cat((torch.full((1, p, 1), 7.0), spot.reshape(1, -1, 1)), dim=1)


def moments(grid: tuple[int, int, int], velocity: tuple[float, float]) -> Tensor:
    return MotionReadout(1)(spot_tokens(grid, velocity), grid)[0, 1:]


def test_the_class_token_or_the_mean() -> None:
    tokens = torch.randn(2, 9, 4)
    assert torch.equal(ClassReadout(1)(tokens, (2, 2, 2)), tokens[:, 0])
    assert torch.equal(ClassReadout(0)(tokens[:, 1:], (2, 2, 2)), tokens[:, 1:].mean(dim=1))
    assert torch.equal(MotionReadout(1)(tokens, (2, 2, 2))[:, :4], tokens[:, 0])


def test_weights_are_centred_along_time_and_space_and_of_size_one() -> None:
    f, h, w = grid = (4, 5, 3)
    for weights in _motion_weights(grid) * f * h * w:
        cube = weights.reshape(grid)
        torch.testing.assert_close(cube.mean(dim=0), torch.zeros(h, w), atol=1e-6, rtol=0)  # standing still is nothing
        torch.testing.assert_close(cube.mean(dim=(1, 2)), torch.zeros(f), atol=1e-6, rtol=0)  # so is a change of light
        torch.testing.assert_close(cube.square().mean(), torch.tensor(1.0))


@pytest.mark.parametrize(
    ("velocity", "signs"),
    [((0.0, 0.3), (0, 1)), ((0.0, -0.3), (0, -1)), ((0.3, 0.0), (1, 0)), ((-0.3, 0.0), (-1, 0)), ((0.0, 0.0), (0, 0))],
)
def test_the_sign_says_where_a_spot_goes(velocity: tuple[float, float], signs: tuple[int, int]) -> None:
    found = moments((4, 7, 7), velocity)
    for value, sign in zip(found, signs, strict=True):
        assert value * sign > 0.1 * _GAIN if sign else abs(value) < 1e-5


def test_the_same_motion_gives_the_same_at_any_size() -> None:
    torch.testing.assert_close(moments((8, 14, 14), (0.1, 0.2)), moments((8, 28, 28), (0.1, 0.2)), atol=0.02, rtol=0.02)


def test_moments_are_ten_times_the_mean_over_patches() -> None:
    """Written out: a model is trained with this factor, and another one gives other logits."""
    f, h, w = grid = (4, 3, 5)
    tokens = torch.randn(2, 1 + f * h * w, 6, dtype=torch.float64)
    patches = tokens[:, 1:].reshape(2, f, h, w, 6)
    rows, columns = torch.zeros(2, 6, dtype=torch.float64), torch.zeros(2, 6, dtype=torch.float64)
    for t in range(f):
        for y in range(h):
            for x in range(w):
                time, row, column = (t - 1.5) / 1.25**0.5, (y - 1) / (2 / 3) ** 0.5, (x - 2) / 2**0.5
                rows += 10 * time * row * patches[:, t, y, x] / (f * h * w)
                columns += 10 * time * column * patches[:, t, y, x] / (f * h * w)
    expected = torch.cat((tokens[:, 0], rows, columns), dim=1)
    torch.testing.assert_close(MotionReadout(1)(tokens, grid), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("grid", [(1, 4, 4), (4, 1, 1)])
def test_nothing_moves_in_one_frame_or_in_one_place(grid: tuple[int, int, int]) -> None:
    assert torch.equal(moments(grid, (0.2, 0.2)), torch.zeros(2))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_model_with_it_gives_logits_and_learns(hidden: bool) -> None:
    model = create_model(
        "motionformer-tiny", readout="motion", hidden_head=hidden, num_classes={"verb": 3, "noun": 2}, depth=1
    )
    out = model(torch.randn(2, 3, 8, 48, 48))
    assert isinstance(out, dict)
    assert [tuple(value.shape) for value in out.values()] == [(2, 3), (2, 2)]
    (out["verb"].sum() + out["noun"].sum()).backward()
    first = model.head.hidden.fc if hidden else model.head.classifiers["verb"]
    assert first.weight.shape[1] == 3 * 96
    assert first.weight.grad is not None
    assert bool((first.weight.grad[:, 96:] != 0).any())


def test_vectors_of_frames_side_by_side() -> None:
    """Of an image model the class token of each frame; of others the mean of each frame's patches."""
    tokens, grid = torch.randn(2, 3 + 3 * 4, 5), (3, 2, 2)
    assert torch.equal(ConcatReadout(3, per_frame=True)(tokens, grid), tokens[:, :3].flatten(1))
    assert torch.equal(ClassReadout(3, per_frame=True)(tokens, grid), tokens[:, :3].mean(dim=1))
    means = [tokens[:, 3 + 4 * f : 7 + 4 * f].mean(dim=1) for f in range(3)]
    torch.testing.assert_close(ConcatReadout(3)(tokens, grid), torch.cat(means, dim=1))
    assert ConcatReadout(3).width(5, grid) == 15


def test_a_path_is_as_long_as_the_step_that_a_token_takes() -> None:
    """A bright token among different ones goes two columns right: its channel carries that step, in every frame."""
    f, h, w = grid = (3, 2, 7)
    patches = torch.zeros(1, f, h, w, 16)
    ground = torch.randn(h, w, 15)
    for t in range(f):
        patches[0, t, :, :, 1:] = ground
        patches[0, t, 1, 1 + 2 * t] = torch.eye(16)[0] * 9
    tokens = torch.cat((torch.zeros(1, 1, 16), patches.flatten(1, 3)), dim=1)
    rows, columns = PathReadout(1)(tokens, grid)[0, 3 * 16 :].view(2, 16)
    step = 2 / 2.0  # columns are 1 / 2 apart where their mean square is one
    assert columns[0] == pytest.approx(10 * 9 * 2 * step / (2 * h * w), rel=0.05)
    assert abs(rows[0]) < 0.05 * columns[0]
