"""Position embeddings for clips of other lengths: linear in time between the centres of frames, in numbers."""

import pytest
import torch

from motionformer import create_model
from motionformer.models.tokens import JointPositions, SeparatePositions

LONGER = [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]  # frames 0 1 2 3 for eight; the ends stay
SHORTER = [0.5, 2.5]  # for two
BETWEEN = [1 / 6, 1.5, 2 + 5 / 6]  # for three


def positions_of_frame_numbers(
    kind: type[SeparatePositions] | type[JointPositions],
) -> SeparatePositions | JointPositions:
    """Four frames of 2 × 3 places: what is added to a token is the number of its frame, and 100 times its place."""
    made = kind(1, (4, 2, 3), 1)
    frames, places = torch.arange(4.0), 100 * torch.arange(6.0)
    with torch.no_grad():
        if isinstance(made, SeparatePositions):
            made.time.copy_(frames[:, None])
            made.space.copy_(places[:, None])
        else:
            made.table.copy_((frames[:, None] + places).reshape(-1, 1))
        assert made.prefix is not None
        made.prefix.fill_(-7)
    return made


@pytest.mark.parametrize("kind", [SeparatePositions, JointPositions])
@pytest.mark.parametrize("numbers", [LONGER, SHORTER, BETWEEN, [0.0, 1.0, 2.0, 3.0]], ids=len)
def test_time_is_interpolated(kind: type[SeparatePositions] | type[JointPositions], numbers: list[float]) -> None:
    found = positions_of_frame_numbers(kind)((len(numbers), 2, 3))[0, :, 0]
    expected = [-7.0, *(number + 100 * place for number in numbers for place in range(6))]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("kind", ["separate", "joint"])
def test_a_model_of_longer_clips_is_one_with_the_longer_table(kind: str) -> None:
    model = create_model("motionformer-tiny", depth=1, positions=kind).eval()
    with torch.no_grad():
        table = model.positions.time if kind == "separate" else model.positions.table
        table.normal_()
        longer = create_model("motionformer-tiny", depth=1, positions=kind, frames=16).eval()
        old, state = table.unflatten(0, (4, -1)), model.state_dict()
        new = [
            old[max(0, (i - 1) // 2)] * w + old[min(3, (i + 1) // 2)] * (1 - w) for i, w in enumerate([0.25, 0.75] * 4)
        ]
        name = "positions.time" if kind == "separate" else "positions.table"
        longer.load_state_dict({**state, name: torch.cat(new)})
        clip = torch.randn(1, 3, 16, 48, 48)
        torch.testing.assert_close(model(clip), longer(clip), atol=1e-5, rtol=1e-4)
