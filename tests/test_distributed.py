"""Launchers as their environment variables tell of them."""

import pytest

from motionformer.distributed import Launcher, Rank, is_rank_zero, local_rank
from motionformer.errors import LaunchError

VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
SLURM = ("SLURM_NTASKS", "SLURM_NNODES", "SLURM_PROCID", "SLURM_JOB_NAME")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *SLURM):
        monkeypatch.delenv(name, raising=False)


def set_all(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def test_a_process_alone() -> None:
    assert Launcher.find() is None
    assert is_rank_zero()
    assert Rank().share([1, 2, 3]) == [1, 2, 3]


def test_torchrun_inside_slurm_is_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(
        monkeypatch, SLURM_NTASKS=2, SLURM_PROCID=0, TORCHELASTIC_RUN_ID="x", RANK=5, WORLD_SIZE=8, LOCAL_WORLD_SIZE=4
    )
    launcher = Launcher.find()
    assert launcher is not None
    assert (launcher.name, launcher.rank, launcher.num_nodes, launcher.processes_per_node) == ("torchrun", 5, 2, 4)
    assert not is_rank_zero()


def test_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_NTASKS=4, SLURM_NNODES=2, SLURM_PROCID=3, SLURM_JOB_NAME="train")
    launcher = Launcher.find()
    assert launcher is not None
    assert (launcher.name, launcher.processes_per_node) == ("SLURM", 2)
    assert not is_rank_zero()


def test_nodes_with_different_numbers_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_NTASKS=3, SLURM_NNODES=2, SLURM_JOB_NAME="train")
    with pytest.raises(LaunchError, match="3 processes on 2 nodes"):
        Launcher.find()


def test_lightning_on_the_second_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_rank() == 0
    set_all(monkeypatch, LOCAL_RANK=0, NODE_RANK=1)
    assert not is_rank_zero()
    set_all(monkeypatch, LOCAL_RANK=3)
    assert local_rank() == 3


def test_every_item_has_one_owner() -> None:
    shares = [Rank(rank, 3).share(list(range(10))) for rank in range(3)]
    assert sorted(item for share in shares for item in share) == list(range(10))
