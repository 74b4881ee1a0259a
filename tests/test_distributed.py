"""Launchers as their environment variables tell of them."""

import pytest

from motionformer.distributed import Launcher, Rank, _first_node, is_rank_zero
from motionformer.errors import LaunchError

VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
SLURM = ("STEP_NUM_TASKS", "STEP_NUM_NODES", "STEP_NODELIST", "STEP_ID", "PROCID", "LOCALID", "JOB_ID", "JOB_NAME")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "MASTER_ADDR", "MASTER_PORT", *(f"SLURM_{name}" for name in SLURM)):
        monkeypatch.delenv(name, raising=False)


def set_all(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def test_a_process_alone() -> None:
    assert Launcher.find() is None
    assert is_rank_zero()
    assert Rank().share([1, 2, 3]) == [1, 2, 3]


def test_torchrun_inside_slurm_is_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_STEP_NUM_TASKS=2, SLURM_PROCID=0, TORCHELASTIC_RUN_ID="x")
    set_all(monkeypatch, RANK=5, LOCAL_RANK=1, WORLD_SIZE=8, LOCAL_WORLD_SIZE=4)
    launcher = Launcher.find()
    assert launcher is not None
    assert (launcher.name, launcher.rank, launcher.num_nodes, launcher.processes_per_node) == ("torchrun", 5, 2, 4)
    assert not is_rank_zero()


@pytest.mark.parametrize("job", ["train", "interactive", "bash"])
def test_srun_also_in_an_interactive_allocation(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_STEP_NUM_TASKS=4, SLURM_STEP_NUM_NODES=2, SLURM_PROCID=3, SLURM_LOCALID=1)
    set_all(monkeypatch, SLURM_STEP_NODELIST="gpu[07-08],m1", SLURM_JOB_NAME=job, SLURM_JOB_ID=12)
    launcher = Launcher.find()
    assert launcher is not None
    assert (launcher.name, launcher.processes_per_node, launcher.local_rank) == ("srun", 2, 1)
    assert launcher.address == "gpu07"
    set_all(monkeypatch, SLURM_STEP_ID=1)
    other = Launcher.find()
    assert other is not None
    assert other.port != launcher.port, "two steps of one job"
    assert not is_rank_zero()


def test_a_batch_script_without_srun_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_NTASKS=4, SLURM_PROCID=0, SLURM_JOB_ID=12, SLURM_JOB_NAME="train")
    assert Launcher.find() is None


def test_nodes_with_different_numbers_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_STEP_NUM_TASKS=3, SLURM_STEP_NUM_NODES=2, SLURM_PROCID=0)
    with pytest.raises(LaunchError, match="3 processes on 2 nodes"):
        Launcher.find()


def test_lightning_on_the_second_node(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, LOCAL_RANK=0, NODE_RANK=1, LOCAL_WORLD_SIZE=2, WORLD_SIZE=4, MASTER_PORT=1)
    launcher = Launcher.find()
    assert launcher is not None
    assert (launcher.name, launcher.rank) == ("Lightning", 2)
    assert not is_rank_zero()


@pytest.mark.parametrize(
    ("nodes", "first"), [("n1", "n1"), ("n1,n2", "n1"), ("n[3-5]", "n3"), ("a[01,04-07]x,b2", "a01x"), ("n[9]", "n9")]
)
def test_the_first_node_of_a_list(nodes: str, first: str) -> None:
    assert _first_node(nodes) == first


def test_every_item_has_one_owner() -> None:
    shares = [Rank(rank, 3).share(list(range(10))) for rank in range(3)]
    assert sorted(item for share in shares for item in share) == list(range(10))
