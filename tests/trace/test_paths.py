"""Maps and paths: against loops, and what must hold for any weights."""

import math

import pytest
import torch

from motionformer.errors import TraceError
from motionformer.trace.choice import choose_heads, choose_layers, pick_all
from motionformer.trace.maps import split_row
from motionformer.trace.paths import MIN_PEAKEDNESS, ellipse, expected_path, path_covariance, peak_path, peakedness
from motionformer.trace.score import mean_places, torus_distance


def random_maps(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).softmax(dim=-1)


class TestPaths:
    def test_mean_and_covariance_equal_a_loop(self) -> None:
        maps, places = random_maps(2, 3, 5), torch.rand(5, 2, dtype=torch.float64)
        path, covariance = expected_path(maps, places), path_covariance(maps, places)
        for which in range(2):
            for f in range(3):
                weight = maps[which, f].tolist()
                mean = [sum(w * p[axis] for w, p in zip(weight, places.tolist(), strict=True)) for axis in range(2)]
                assert path[which, f].tolist() == pytest.approx(mean)
                for i in range(2):
                    for j in range(2):
                        terms = [
                            w * (p[i] - mean[i]) * (p[j] - mean[j])
                            for w, p in zip(weight, places.tolist(), strict=True)
                        ]
                        assert covariance[which, f, i, j].item() == pytest.approx(sum(terms))

    def test_one_patch_is_certain(self) -> None:
        places = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        maps = torch.tensor([[0.0, 1.0]])
        assert expected_path(maps, places).tolist() == [[3.0, 4.0]]
        assert path_covariance(maps, places).abs().max() == 0

    def test_the_peak_is_found_on_a_ground_that_draws_the_mean_to_the_middle(self) -> None:
        grid = self.grid()
        maps = torch.full((1, 49), 0.5 / 49, dtype=torch.float64)
        maps[0, 8], maps[0, 9] = maps[0, 8] + 0.3, maps[0, 9] + 0.2  # second row, second and third column
        assert peak_path(maps, grid, (4.0, 8.0)).tolist()[0] == pytest.approx([6.0 + 4.0 * 0.2 / 0.5, 12.0], rel=1e-2)
        assert expected_path(maps, grid)[0, 1] == pytest.approx((12.0 + 28.0) / 2)

    def test_of_two_peaks_the_higher_counts(self) -> None:
        maps = torch.zeros(1, 49, dtype=torch.float64)
        maps[0, 21], maps[0, 27] = 0.6, 0.4  # both ends of a row
        assert peak_path(maps, self.grid(), (4.0, 8.0)).tolist() == [[2.0, 28.0]]

    def test_what_is_the_same_everywhere_keeps_its_mean(self) -> None:
        maps = torch.full((2, 49), 1 / 49, dtype=torch.float64)
        found = peak_path(maps, self.grid(), (4.0, 8.0))
        torch.testing.assert_close(found, torch.tensor([[14.0, 28.0]] * 2, dtype=torch.float64))

    def test_a_peak_reaches_two_patches_and_no_further(self) -> None:
        maps = torch.zeros(3, 49, dtype=torch.float64)
        maps[:, 24] = 0.6
        for frame, other in enumerate((26, 27, 38)):  # two and three patches to the right, two below
            maps[frame, other] = 0.4
        found = peak_path(maps, self.grid(), (4.0, 8.0))
        share = (0.4 - 1 / 49) / (0.6 - 1 / 49 + 0.4 - 1 / 49)
        wanted = [[14.0 + share * 8.0, 28.0], [14.0, 28.0], [14.0, 28.0 + share * 16.0]]
        torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))

    def test_how_much_is_in_the_peak(self) -> None:
        """Nothing of a uniform map; all but its uniform part where one patch gets everything; a faint peak is faint."""
        maps = torch.full((4, 49), 1 / 49, dtype=torch.float64)
        maps[1] = torch.eye(49, dtype=torch.float64)[30]
        maps[2] = 0.8 / 49
        maps[2, 30] += 0.2
        maps[3, ::2] *= 1.1  # rough everywhere; its largest weight is in the corner
        maps[3] /= maps[3].sum()
        found = peakedness(maps, self.grid(), (4.0, 8.0)).tolist()
        assert found == pytest.approx([0.0, 48 / 49, 0.2 - 0.2 / 49, 5 * (maps[3, 0].item() - 1 / 49)], abs=1e-12)
        assert found[3] < MIN_PEAKEDNESS < found[2]

    @staticmethod
    def grid() -> torch.Tensor:
        """Seven by seven patches of 4 × 8 pixels."""
        rows, columns = torch.meshgrid(torch.arange(7.0), torch.arange(7.0), indexing="ij")
        return torch.stack((4.0 * columns + 2.0, 8.0 * rows + 4.0), dim=-1).flatten(0, 1).double()

    @pytest.mark.parametrize("angle", [0.0, 30.0, 80.0])
    def test_the_ellipse_of_a_turned_covariance(self, angle: float) -> None:
        c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        turn = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        covariance = turn @ torch.diag(torch.tensor([9.0, 4.0], dtype=torch.float64)) @ turn.T
        long, short, found = ellipse(covariance)
        assert (long, short) == pytest.approx((6.0, 4.0))
        assert min(abs(found - angle), abs(abs(found - angle) - 180)) < 1e-6
        assert ellipse(covariance, 2.0)[0] == pytest.approx(12.0)


class TestMaps:
    def test_shares_and_maps_make_the_weights_again(self) -> None:
        row = torch.rand(2 + 12)
        found = split_row(row, 3, 2)
        assert torch.allclose(found.space.sum(dim=1), torch.ones(3, dtype=torch.float64))
        assert found.mass.sum().item() == pytest.approx(1.0)
        assert torch.allclose(found.weights.flatten(), (row[2:] / row[2:].sum()).double(), atol=1e-6)
        assert found.prefix == pytest.approx(float(row[:2].sum() / row.sum()))

    def test_a_frame_of_hardly_any_weight_keeps_its_map(self) -> None:
        row = torch.tensor([1e-42, 3e-42, 0.5, 0.5])
        assert split_row(row, 2, 0).space[0].tolist() == pytest.approx([0.25, 0.75], rel=1e-3)

    def test_a_frame_without_weight_is_unknown(self) -> None:
        found = split_row(torch.tensor([0.0, 0.0, 1.0, 3.0]), 2, 0)
        assert found.space.tolist() == [[0.5, 0.5], [0.25, 0.75]]
        assert found.mass.tolist() == [0.0, 1.0]

    def test_negative_weights_of_approximations_count_as_none(self) -> None:
        assert split_row(torch.tensor([-1.0, 1.0, 1.0, 2.0]), 2, 0).mass.tolist() == [0.25, 0.75]

    def test_nothing_at_all_is_an_error(self) -> None:
        with pytest.raises(TraceError, match="all patches are zero"):
            split_row(torch.tensor([1.0, 0.0, 0.0]), 1, 1)


class TestChoice:
    rows = torch.arange(24.0).view(2, 3, 4)

    def test_names_and_rows(self) -> None:
        shown = pick_all(self.rows, choose_layers("all", 2), choose_heads("all", 3))
        assert [(layer, head) for layer, head, _ in shown] == [(i, h) for i in "01" for h in "012"]
        assert torch.equal(shown[4][2], self.rows[1, 1])
        [(layer, head, row)] = pick_all(self.rows, choose_layers("mean", 2), choose_heads(2, 3))
        assert (layer, head) == ("mean", "2")
        assert torch.equal(row, self.rows[:, 2].mean(dim=0))

    def test_last_and_numbers(self) -> None:
        assert choose_layers("last", 12).numbers == (11,)
        assert choose_layers("3", 12).numbers == (3,)
        assert choose_heads("mean", 4).names == ("mean",)

    @pytest.mark.parametrize("layer", [12, "12", -1])
    def test_out_of_range(self, layer: int | str) -> None:
        with pytest.raises(TraceError, match=r"no layer -?\d+: the model has 12, counted from 0 to 11"):
            choose_layers(layer, 12)

    def test_nonsense(self) -> None:
        with pytest.raises(TraceError, match="head is all, mean or a number; not 'last'"):
            choose_heads("last", 4)


class TestTorus:
    def test_the_shorter_way_around(self) -> None:
        a, b = torch.tensor([1.0, 5.0]), torch.tensor([47.0, 8.0])
        assert torus_distance(a, b, 48).item() == pytest.approx(math.hypot(2, 3))

    def test_a_mean_across_the_border_stays_at_the_border(self) -> None:
        path = torch.tensor([[46.0, 10.0], [0.0, 12.0], [20.0, 1.0], [22.0, 47.0]])
        assert mean_places(path, 2, 48).tolist() == [[47.0, 11.0], [21.0, 0.0]]
