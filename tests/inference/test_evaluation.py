"""The loop: equal to one clip at a time; killed and continued, or done by two, the same bytes."""

import filecmp
import multiprocessing
import os
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motionformer.distributed import process_group
from motionformer.errors import EvaluationError, OutputError
from motionformer.inference import Results, Sigmoid, evaluate
from motionformer.inference.evaluation import PARTS, _groups
from motionformer.inference.views import ReadVideo
from motionformer.models import ModelConfig
from motionformer.video import ReadFacts
from tests.inference.made import NAMES, Linear, Numbers
from tests.two_ranks import run_two_ranks

FILES = ("results.npz", "results.csv")


def test_it_is_the_loop_over_single_clips() -> None:
    model, source = Linear(), Numbers()
    found = evaluate(model, source, batch_size=4)
    for index in range(len(source.entries)):
        for place, clip in enumerate(source.read(index)):  # type: ignore[arg-type]
            slow = model(clip[None]).softmax(-1)[0].detach().numpy()
            view, crop = divmod(place, 3)
            assert found.scores["class"][index, view, crop] == pytest.approx(slow, abs=1e-6)
        mean = found.scores["class"][index].reshape(6, -1).mean(axis=0)
        assert found.averaged("class")[index] == pytest.approx(mean, abs=1e-6)
    assert found.labels["class"].tolist() == [i % len(NAMES) for i in range(11)]
    assert found.ids[3] == "video 3"


@pytest.mark.parametrize("labels", [("c", "g", "a", "b", "f", "e", "d"), NAMES[::-1]])
def test_outputs_are_put_into_the_order_of_the_datas_classes(labels: tuple[str, ...]) -> None:
    model, source = Linear(), Numbers(views=1, crops=1)
    model.config = ModelConfig(num_classes=7, labels=labels)
    found = evaluate(model, source)
    assert found.header.class_names == {"class": NAMES}
    for index in range(len(source.entries)):
        named = dict(zip(labels, model(source.read(index)).softmax(-1)[0].tolist(), strict=True))  # type: ignore[arg-type]
        assert found.scores["class"][index, 0, 0].tolist() == pytest.approx([named[name] for name in NAMES], abs=1e-6)


def test_facts_survive_an_interruption(tmp_path: Path) -> None:
    class Told(Numbers):
        def read(self, index: int) -> Any:
            views = super().read(index)
            return views if index == 4 else ReadVideo(views, ReadFacts(8, 2 + index % 2, index == 3))

    expected = {i: ReadFacts(8, 2 + i % 2, i == 3) for i in range(11) if i != 4}
    with pytest.raises(KeyboardInterrupt):
        evaluate(Linear(), Told(fatal=7), batch_size=6, output=tmp_path)
    assert evaluate(Linear(), Told(), batch_size=6, output=tmp_path).facts == expected
    assert Results.load(tmp_path).facts == expected


@pytest.mark.parametrize(("batch", "largest"), [(1, 1), (4, 4), (6, 6), (13, 12), (100, 66)])
def test_a_forward_pass_never_holds_more_than_the_batch(batch: int, largest: int) -> None:
    model = Linear()
    evaluate(model, Numbers(), batch_size=batch)
    assert max(model.batches) == largest
    assert sum(model.batches) == 66


def test_the_model_is_left_as_it_was() -> None:
    model = torch.nn.Sequential(Linear(), torch.nn.Dropout(0.9)).train()
    first, second = (evaluate(model, Numbers()).scores["class"] for _ in range(2))
    assert model.training
    assert (first == second).all()
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_failed_videos_are_listed_and_have_no_scores() -> None:
    found = evaluate(Linear(), Numbers(broken=[0, 1, 2, 7]), batch_size=18)
    assert found.failures == dict.fromkeys([0, 1, 2, 7], "is broken")
    assert np.isnan(found.scores["class"][[0, 1, 2, 7]]).all()
    assert np.isfinite(found.scores["class"][found.readable]).all()
    assert found.labels["class"][7] == 0
    whole = evaluate(Linear(), Numbers(), batch_size=18)
    assert found.scores["class"][8] == pytest.approx(whole.scores["class"][8], abs=1e-6)


def test_workers_change_nothing() -> None:
    source = Numbers(broken=[4])
    one, two = (evaluate(Linear(), source, batch_size=4, num_workers=n) for n in (0, 2))
    assert (one.scores["class"][one.readable] == two.scores["class"][two.readable]).all()
    assert one.failures == two.failures


@pytest.mark.parametrize(
    "error",
    [RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), ConnectionResetError(104, "reset")],
)
def test_a_decoder_that_dies_is_an_error_and_what_was_done_is_kept(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What torch raises when a worker is gone; a real one would raise it again in the middle of other tests."""

    def dying(source: Any, groups: Any, num_workers: int, device: Any) -> Iterator[Any]:
        for group in islice(groups, 7):
            yield [(index, source.read(index)) for index in group]
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("motionformer.inference.evaluation.load_groups", dying)
        with pytest.raises(EvaluationError, match="a process that decodes videos died"):
            evaluate(Linear(), Numbers(), batch_size=6, num_workers=1, output=tmp_path)
    again = Numbers()
    evaluate(Linear(), again, batch_size=6, output=tmp_path)
    assert again.read_indices == [7, 8, 9, 10]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_source_is_not_taken_for_a_dead_decoder(workers: int) -> None:
    class Wrong(Numbers):
        def read(self, index: int) -> Any:
            raise ConnectionError("no such server")

    with pytest.raises(ConnectionError, match="no such server"):
        evaluate(Linear(), Wrong(), num_workers=workers)


def test_too_little_memory_says_what_to_do() -> None:
    class Large(Linear):
        def forward(self, clip: torch.Tensor) -> Any:
            raise torch.OutOfMemoryError

    with pytest.raises(EvaluationError, match="a batch of 6 clips does not fit into the memory of cpu; use a smaller"):
        evaluate(Large(), Numbers(), batch_size=6)


@pytest.mark.parametrize("fatal", [0, 1, 6, 10])
def test_killed_and_continued_ends_with_the_same_bytes(tmp_path: Path, fatal: int) -> None:
    evaluate(Linear(), Numbers(broken=[2, 8]), batch_size=12, output=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        evaluate(Linear(), Numbers(broken=[2, 8], fatal=fatal), batch_size=12, output=tmp_path / "cut")
    assert not (tmp_path / "cut/results.npz").exists()
    again = Numbers(broken=[2, 8])
    evaluate(Linear(), again, batch_size=12, output=tmp_path / "cut")
    assert again.read_indices == list(range(fatal - fatal % 2, 11))  # groups of two videos: a cut one is done again
    for file in FILES:
        assert filecmp.cmp(tmp_path / "whole" / file, tmp_path / "cut" / file, shallow=False)
    assert not (tmp_path / "cut" / PARTS).exists()


def test_sigkill_in_the_middle(tmp_path: Path) -> None:
    def one() -> None:
        evaluate(Linear(), Deadly(), batch_size=6, output=tmp_path / "cut")

    process = multiprocessing.get_context("fork").Process(target=one)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    again = Numbers()
    evaluate(Linear(), again, batch_size=6, output=tmp_path / "cut")
    assert again.read_indices == [7, 8, 9, 10]
    evaluate(Linear(), Numbers(), batch_size=6, output=tmp_path / "whole")
    for file in FILES:
        assert filecmp.cmp(tmp_path / "whole" / file, tmp_path / "cut" / file, shallow=False)


class Deadly(Numbers):
    def read(self, index: int) -> Any:
        if index == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(index)


def test_finished_is_not_done_again(tmp_path: Path) -> None:
    first = evaluate(Linear(), Numbers(), output=tmp_path)
    again = Numbers()
    second = evaluate(Linear(), again, output=tmp_path)
    assert again.read_indices == []
    assert (first.scores["class"] == second.scores["class"]).all()
    assert first.header == second.header
    assert first.header.to_json() == second.header.to_json()


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("change", ["model", "data", "views", "precision"])
def test_another_evaluation_is_not_continued(tmp_path: Path, change: str, finished: bool) -> None:
    if finished:
        evaluate(Linear(), Numbers(), output=tmp_path)
    else:
        with pytest.raises(KeyboardInterrupt):
            evaluate(Linear(), Numbers(fatal=9), output=tmp_path)
    model, source, options = Linear(), Numbers(), {}
    if change == "model":
        model.heads["class"].data[0, 0] += 1e-3
    elif change == "data":
        source = Numbers(labels=[0] * 11)
    elif change == "views":
        source = Numbers(views=1)
    else:
        options = {"precision": "bf16"}
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.*")}
    kind, message = (EvaluationError, "differs from this one .* in") if finished else (OutputError, "of another run:")
    with pytest.raises(kind, match=f"{message} .*{change}"):
        evaluate(model, source, output=tmp_path, **options)  # type: ignore[arg-type]
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*.*")}


def test_a_damaged_part_is_done_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate(Linear(), Numbers(fatal=9), batch_size=6, output=tmp_path)
    journal = tmp_path / PARTS / "0000.jsonl"
    lines = journal.read_bytes().split(b"\n")
    lines[4] = lines[4][:100]  # after the header: video 3
    journal.write_bytes(b"\n".join(lines))
    again = Numbers()
    evaluate(Linear(), again, batch_size=6, output=tmp_path)
    assert again.read_indices == [3, 9, 10]
    assert "is damaged" in caplog.text


def test_two_processes_write_the_file_of_one(tmp_path: Path) -> None:
    evaluate(Linear(), Numbers(broken=[5]), batch_size=12, output=tmp_path / "one")
    told = run_two_ranks(_evaluate_among_two, tmp_path / "two")
    assert sorted(index for _, indices, _ in told for index in indices) == list(range(11)), "each video once"
    assert [length for _, _, length in told] == [11, 11]
    for file in FILES:
        assert filecmp.cmp(tmp_path / "one" / file, tmp_path / "two" / file, shallow=False)


def _evaluate_among_two(output: Path) -> tuple[int, list[int], int]:
    with process_group() as processes:
        source = Numbers(broken=[5])
        found = evaluate(Linear(), source, batch_size=12, output=output)
        return processes.rank, source.read_indices, len(found)


def test_one_process_goes_on_where_two_were_killed(tmp_path: Path) -> None:
    told = run_two_ranks(_be_cut_short, tmp_path / "cut")
    assert told == [None, None]
    again = Numbers()
    evaluate(Linear(), again, batch_size=12, output=tmp_path / "cut")
    evaluate(Linear(), Numbers(), batch_size=12, output=tmp_path / "whole")
    assert again.read_indices == [6, 7], "whoever came to it died of it; the other has done the rest"
    for file in FILES:
        assert filecmp.cmp(tmp_path / "whole" / file, tmp_path / "cut" / file, shallow=False)


def _be_cut_short(output: Path) -> None:
    with process_group(), pytest.raises((KeyboardInterrupt, RuntimeError)):  # the one's end is the other one's error
        evaluate(Linear(), Numbers(fatal=6), batch_size=12, output=output)


def test_all_processes_refuse_together(tmp_path: Path) -> None:
    """None is left waiting for another."""
    evaluate(Linear(), Numbers(), output=tmp_path)
    assert run_two_ranks(_be_refused, tmp_path) == ["refused", "refused"]


def _be_refused(output: Path) -> str:
    with process_group():
        try:
            evaluate(Linear(), Numbers(views=1), output=output)
        except EvaluationError:
            return "refused"
        return "done"


def test_several_heads_and_several_labels() -> None:
    two = Numbers(labels=[{"verb": i % 3, "noun": i % 2} for i in range(11)])
    two.class_names = {"verb": ("take", "put", "cut"), "noun": ("cup", "pan")}
    found = evaluate(Linear({"verb": 3, "noun": 2}), two)
    assert found.scores["verb"].shape == (11, 2, 3, 3)
    assert found.labels["noun"].tolist() == [i % 2 for i in range(11)]
    several = Numbers(labels=[(0, 2), ()] + [(i % 7,) for i in range(9)])
    many = evaluate(Linear(), several, scoring=Sigmoid())
    assert many.labels["class"][0].tolist() == [True, False, True, False, False, False, False]
    assert not many.labels["class"][1].any()
    assert many.header.scoring == "sigmoid"


def test_outputs_that_are_no_numbers_are_refused() -> None:
    model = Linear()
    model.heads["class"].data[0, 0] = float("nan")
    with pytest.raises(EvaluationError, match="is not finite"):
        evaluate(model, Numbers())


def test_groups_hold_every_video_once() -> None:
    for count in (0, 1, 7, 16):
        for size in (0, 1, 3, 20):
            assert [index for group in _groups(count, size) for index in group] == list(range(count))
    assert _groups(7, 3, frozenset({0, 1, 2, 4})) == [[3, 5], [6]]


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_what_is_no_results_file_is_refused(tmp_path: Path, content: Any) -> None:
    if content is not None:
        (tmp_path / "results.npz").write_bytes(content)
    with pytest.raises(EvaluationError, match=r"results\.npz"):
        Results.load(tmp_path)
