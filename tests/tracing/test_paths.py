"""Paths: against loops, and what must hold for any weights."""

import math

import pytest
import torch

from motionformer.tracing.paths import (
    MIN_PEAKEDNESS,
    _mean_positions,
    _torus_distance,
    ellipse,
    expected_path,
    path_covariance,
    peak_path,
    peakedness,
)


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


class TestTorus:
    def test_the_shorter_way_around(self) -> None:
        a, b = torch.tensor([1.0, 5.0]), torch.tensor([47.0, 8.0])
        assert _torus_distance(a, b, 48).item() == pytest.approx(math.hypot(2, 3))

    def test_a_mean_across_the_border_stays_at_the_border(self) -> None:
        path = torch.tensor([[46.0, 10.0], [0.0, 12.0], [20.0, 1.0], [22.0, 47.0]])
        assert _mean_positions(path, 2, 48).tolist() == [[47.0, 11.0], [21.0, 0.0]]
