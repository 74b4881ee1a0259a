"""Launchers as their environment variables tell of them; two ranks that share work, stop, fail and die."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motionformer.distributed import Launcher, Rank, _first_node, is_rank_zero, local_rank, process_group
from motionformer.errors import LaunchError, OutputError, VideoError
from motionformer.stopping import stop_on_signals
from tests.two_ranks import run_two_ranks, start_two_ranks

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
    set_all(monkeypatch, RANK=5, LOCAL_RANK=1, WORLD_SIZE=8, LOCAL_WORLD_SIZE=4, MASTER_PORT=1)
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


def test_a_batch_script_without_srun_is_one_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_all(monkeypatch, SLURM_NTASKS=4, SLURM_PROCID=0, SLURM_JOB_ID=12, SLURM_JOB_NAME="train")
    assert Launcher.find() is None
    with process_group() as rank:
        assert rank == Rank(0, 1)
    assert "this SLURM job has 4 tasks" in caplog.text


def test_nodes_with_different_numbers_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_STEP_NUM_TASKS=3, SLURM_STEP_NUM_NODES=2, SLURM_PROCID=0)
    with pytest.raises(LaunchError, match="3 processes on 2 nodes"):
        Launcher.find()


def test_lightning_on_the_second_node(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, LOCAL_RANK=0, NODE_RANK=1, LOCAL_WORLD_SIZE=2, WORLD_SIZE=4, MASTER_PORT=1)
    launcher = Launcher.find()
    assert launcher is not None
    assert (launcher.name, launcher.rank) == ("Lightning", 2)
    set_all(monkeypatch, LOCAL_RANK=1)
    assert local_rank() == 1
    assert not is_rank_zero()


@pytest.mark.parametrize(
    ("nodes", "first"), [("n1", "n1"), ("n1,n2", "n1"), ("n[3-5]", "n3"), ("a[01,04-07]x,b2", "a01x"), ("n[9]", "n9")]
)
def test_the_first_node_of_a_list(nodes: str, first: str) -> None:
    assert _first_node(nodes) == first


def test_every_item_has_one_owner() -> None:
    shares = [Rank(rank, 3).share(list(range(10))) for rank in range(3)]
    assert sorted(item for share in shares for item in share) == list(range(10))


def test_a_queue_gives_every_item_to_one_rank_and_more_to_the_faster(tmp_path: Path) -> None:
    found = run_two_ranks(_take_from_two_queues, tmp_path)
    assert sorted(item for _, first, _ in found for item in first) == list(range(20))
    assert sorted(item for _, _, second in found for item in second) == list(range(3))
    counts = {rank: len(first) for rank, first, _ in found}
    assert counts[1] > counts[0], "rank zero was slow"


def _take_from_two_queues(folder: Path) -> tuple[int, list[int], list[int]]:
    with process_group() as rank:
        rank.check_shared(folder)
        first = []
        for item in rank.queue(range(20)):
            first.append(item)
            time.sleep(0.05 if rank.is_zero else 0.005)
        second = list(rank.queue(range(3)))
        return rank.rank, first, second


def test_a_signal_to_one_rank_stops_both(tmp_path: Path) -> None:
    found = dict(run_two_ranks(_be_asked_to_stop, tmp_path))
    assert found.keys() == {0, 1}
    assert sum(taken for taken, _, _ in found.values()) < 900, "neither came to the end"
    assert [(before, after) for _, before, after in found.values()] == [(False, True), (False, True)]


def _be_asked_to_stop(folder: Path) -> tuple[int, tuple[int, bool, bool]]:
    taken = 0
    with stop_on_signals(), process_group() as rank:
        before = rank.any_stopped()
        for _ in rank.queue(range(1000)):
            taken += 1
            time.sleep(0.001)
            if rank.rank == 1 and taken == 2:
                os.kill(os.getpid(), signal.SIGUSR1)
        return rank.rank, (taken, before, rank.any_stopped())


def test_a_folder_that_is_not_shared_is_an_error_on_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motionformer.distributed._SECONDS_TO_SEE_A_FILE", 0.3)
    for said in run_two_ranks(_use_a_folder_of_ones_own, tmp_path):
        assert "rank 1 on " in said
        assert "cannot see what rank 0 on " in said
    assert not list(tmp_path.glob("*/.shared*"))


def _use_a_folder_of_ones_own(folder: Path) -> str:
    with process_group() as rank:
        (folder / str(rank.rank)).mkdir()
        os.chdir(folder / str(rank.rank))
        try:
            rank.check_shared(Path("run"))
        except OutputError as error:
            return str(error)
        return ""


def _fail(folder: Path) -> None:
    raise VideoError("is no video", "a.mp4")


def _die(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _break(folder: Path) -> None:
    raise TypeError("a mistake")


class _OnOne:
    """One rank fails, the other waits for it, in a collective or elsewhere."""

    def __init__(self, rank: int, fail: Callable[[Path], None], *, in_collective: bool) -> None:
        self.rank, self.fail, self.in_collective = rank, fail, in_collective

    def __call__(self, folder: Path) -> Any:
        sys.stderr = (folder / os.environ["RANK"]).open("w")
        with process_group() as rank:
            if rank.rank == self.rank:
                self.fail(folder)
            if self.in_collective:
                rank.gather(1)
            time.sleep(60)


@pytest.mark.parametrize(
    ("rank", "fail", "in_collective", "said"),
    [
        (1, _fail, True, "error: rank 1 on {host}: a.mp4: is no video. All processes of the job were ended"),
        (1, _die, False, "error: rank 1 on {host}: the process died. All processes"),
        (1, _die, True, "error: rank 1 on {host}: the process died. All processes"),
        (0, _die, False, "error: rank 0 on 127.0.0.1: the process died. All processes"),
        (1, _break, False, "error: rank 1 on {host}: TypeError: a mistake. All processes"),
    ],
)
def test_a_lost_rank_ends_the_other_and_is_named(
    rank: int, fail: Callable[[Path], None], in_collective: bool, said: str, tmp_path: Path
) -> None:
    both, _ = start_two_ranks(_OnOne(rank, fail, in_collective=in_collective), tmp_path)
    started = time.monotonic()
    for process in both:
        process.join(20)
    assert time.monotonic() - started < 15
    assert both[1 - rank].exitcode == 1
    assert both[rank].exitcode in (1, -signal.SIGKILL)
    text = (tmp_path / str(1 - rank)).read_text()
    assert text.startswith(said.format(host=os.uname().nodename)), text
    assert text.count("error:") == 1
