"""A stored result is of the files that were scored: others are refused, failed ones that changed are tried again."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motionformer.data import Failure
from motionformer.data.motion import write_videos
from motionformer.errors import EvaluationError
from motionformer.inference import Results, evaluate, open_source
from motionformer.inference.evaluation import PARTS, _stamp_videos
from motionformer.inference.views import Entry
from motionformer.models import create_model
from motionformer.runs import stamp_video
from tests.inference.made import Linear, Numbers


class Files(Numbers):
    """Video i is the noise of the seed that its file holds; a file without a number cannot be read."""

    def __init__(self, folder: Path, fatal: int | None = None) -> None:
        super().__init__(fatal=fatal)
        self.entries = tuple(Entry(f"{i}", str(folder / f"{i}.txt"), e.label) for i, e in enumerate(self.entries))

    def read(self, index: int) -> Any:
        self.broken = () if Path(self.entries[index].path).read_text().isdigit() else (index,)
        found = super().read(index)
        return found if isinstance(found, Failure) else found + int(Path(self.entries[index].path).read_text())


def write_files(folder: Path, first: int = 0) -> Path:
    folder.mkdir()
    for index in range(11):
        (folder / f"{index}.txt").write_text(f"{first + index}")
    return folder


def begin(source: Files, output: Path, *, finished: bool) -> None:
    """An evaluation in parts of one video, all done or cut before video 9."""
    if finished:
        evaluate(Linear(), source, batch_size=6, output=output)
        return
    source.fatal = 9
    with pytest.raises(KeyboardInterrupt):
        evaluate(Linear(), source, batch_size=6, output=output)


@pytest.mark.parametrize("finished", [True, False])
def test_other_videos_of_the_same_names_are_refused(tmp_path: Path, finished: bool) -> None:
    begin(Files(write_files(tmp_path / "g")), tmp_path / "out", finished=finished)
    other = write_files(tmp_path / "g_other", first=100)
    before = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*.*")}
    count = 11 if finished else 9
    with pytest.raises(
        EvaluationError, match=rf"{count} of 11 videos have another size.*g_other/0\.txt.*another folder"
    ):
        evaluate(Linear(), Files(other), output=tmp_path / "out")
    assert before == {file: file.read_bytes() for file in (tmp_path / "out").rglob("*.*")}


def test_scores_outlive_files_that_are_gone(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "g")
    begin(Files(folder), tmp_path / "out", finished=True)
    (folder / "4.txt").unlink()
    assert 4 not in evaluate(Linear(), Files(folder), output=tmp_path / "out").failures


def test_other_real_videos_are_refused(tmp_path: Path) -> None:
    for name, seed in (("g", 0), ("g_other", 1)):
        write_videos(tmp_path / name, "easy", 8, frames=4, size=16, seed=seed)
    model = create_model("motionformer-tiny", frames=4, size=16, dim=16, depth=1, num_heads=2)
    g, other = (open_source(tmp_path / name, model.config.input) for name in ("g", "g_other"))
    evaluate(model, g, output=tmp_path / "out")
    with pytest.raises(EvaluationError, match="8 of 8 videos have another size or modification time"):
        evaluate(model, other, output=tmp_path / "out")


@pytest.mark.parametrize("finished", [True, False])
def test_a_repaired_video_is_tried_again_and_no_other(
    tmp_path: Path, finished: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder, out = write_files(tmp_path / "g"), tmp_path / "out"
    (folder / "4.txt").write_text("broken")
    begin(Files(folder), out, finished=finished)
    (folder / "4.txt").write_text("4")
    again = Files(folder)
    with caplog.at_level("INFO", "motionformer"):
        found = evaluate(Linear(), again, batch_size=6, output=out)
    assert again.read_indices == ([4] if finished else [4, 9, 10])
    assert ("have changed since are tried again" in caplog.text) == finished
    whole = evaluate(Linear(), Files(folder), batch_size=6)
    assert not found.failures
    np.testing.assert_array_equal(Results.load(out).scores["class"], whole.scores["class"])
    assert not (out / PARTS).exists()
    evaluate(Linear(), again, batch_size=6, output=out)
    assert len(again.read_indices) == (1 if finished else 3)


def test_repaired_and_cut_short_again(tmp_path: Path) -> None:
    """The results of before stay until the new ones are whole; what was repaired and scored is not done twice."""
    folder, out = write_files(tmp_path / "g"), tmp_path / "out"
    for index in (4, 9):
        (folder / f"{index}.txt").write_text("broken")
    begin(Files(folder), out, finished=True)
    for index in (4, 9):
        (folder / f"{index}.txt").write_text(f"{index}")
    begin(Files(folder), out, finished=False)
    assert set(Results.load(out).failures) == {4, 9}
    last = Files(folder)
    assert not evaluate(Linear(), last, batch_size=6, output=out).failures
    assert last.read_indices == [9]


def test_a_finished_result_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "motionformer"):
        evaluate(Linear(), Numbers(), output=tmp_path)
        assert caplog.messages == []
        evaluate(Linear(), Numbers(), output=tmp_path)
    assert caplog.messages == [f"{tmp_path}: finished earlier; nothing was computed"]


def test_results_without_stamps_are_taken_as_they_are(tmp_path: Path) -> None:
    folder, out = write_files(tmp_path / "g"), tmp_path / "out"
    begin(Files(folder), out, finished=True)
    with np.load(out / "results.npz") as arrays:
        kept = {name: arrays[name] for name in arrays if name != "stamps"}
    np.savez(out / "results.npz", **kept)
    (folder / "0.txt").write_text("100")
    again = Files(folder)
    evaluate(Linear(), again, batch_size=6, output=out)
    assert again.read_indices == []


class TestPartsOfVersion01:
    """An unfinished evaluation as 0.1 kept it: a header, and an npz file of some videos each."""

    @staticmethod
    def write(results: Results, out: Path, *, stamps: bool = True) -> None:
        parts = out / PARTS
        parts.mkdir(parents=True)
        (parts / "header.json").write_text(results.header.to_json())
        for index in range(9):
            failed = [index] if index in results.failures else []
            done = [] if failed else [index]
            arrays: dict[str, Any] = {
                "indices": np.array(done, dtype=np.int64),
                "failed": np.array(failed, dtype=np.int64),
                "reasons": np.array([results.failures[i] for i in failed], dtype=np.str_),
                "facts": np.array("{}"),
            }
            if stamps:
                arrays |= {"stamped": np.array([index]), "stamps": np.array([results.stamps[index]], dtype=np.str_)}
            if done:
                arrays["scores.class"] = results.scores["class"][done]
            np.savez(parts / f"{index:09d}.npz", **arrays)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = write_files(tmp_path / "g")
        (folder / "4.txt").write_text("broken")
        return folder

    def test_are_resumed_to_the_same_bytes(self, folder: Path, tmp_path: Path) -> None:
        whole = evaluate(Linear(), Files(folder), batch_size=6, output=tmp_path / "whole")
        self.write(whole, tmp_path / "cut")
        again = Files(folder)
        evaluate(Linear(), again, batch_size=6, output=tmp_path / "cut")
        assert again.read_indices == [9, 10]
        for name in ("results.npz", "results.csv"):
            assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert not (tmp_path / "cut" / PARTS).exists()

    @pytest.mark.parametrize("stamps", [True, False])
    def test_of_changed_files(self, folder: Path, tmp_path: Path, stamps: bool) -> None:
        self.write(
            evaluate(Linear(), Files(folder), batch_size=6, output=tmp_path / "w"), tmp_path / "cut", stamps=stamps
        )
        (folder / "4.txt").write_text("4")
        again = Files(folder)
        evaluate(Linear(), again, batch_size=6, output=tmp_path / "cut")
        assert again.read_indices == ([4, 9, 10] if stamps else [9, 10])

    def test_a_damaged_one_is_evaluated_again(
        self, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.write(evaluate(Linear(), Files(folder), batch_size=6, output=tmp_path / "w"), tmp_path / "cut")
        part = sorted((tmp_path / "cut" / PARTS).glob("*.npz"))[3]
        part.write_bytes(part.read_bytes()[:100])
        again = Files(folder)
        evaluate(Linear(), again, batch_size=6, output=tmp_path / "cut")
        assert again.read_indices == [3, 9, 10]
        assert "is damaged" in caplog.text

    def test_of_another_evaluation(self, folder: Path, tmp_path: Path) -> None:
        self.write(evaluate(Linear(), Files(folder), output=tmp_path / "w"), tmp_path / "cut")
        with pytest.raises(EvaluationError, match=r"differs from this one .* in precision"):
            evaluate(Linear(), Files(folder), output=tmp_path / "cut", precision="bf16")
        (tmp_path / "cut" / PARTS / "header.json").write_text("{}")
        with pytest.raises(EvaluationError, match="not the start of an evaluation"):
            evaluate(Linear(), Files(folder), output=tmp_path / "cut")


def test_moved_videos_are_the_same(tmp_path: Path) -> None:
    begin(Files(write_files(tmp_path / "g")), tmp_path / "out", finished=True)
    moved = Files((tmp_path / "g").rename(tmp_path / "moved"))
    evaluate(Linear(), moved, output=tmp_path / "out")
    assert moved.read_indices == []


def test_stamps_change_with_files_and_frames(tmp_path: Path) -> None:
    file, frames = tmp_path / "a.mp4", tmp_path / "frames"
    assert stamp_video(file) == "missing"
    file.write_bytes(b"1")
    seen = [stamp_video(file)]
    os.utime(file, ns=(1, 1))
    seen.append(stamp_video(file))
    file.write_bytes(b"12")
    os.utime(file, ns=(1, 1))
    seen.append(stamp_video(file))
    frames.mkdir()
    for name in ("0.jpg", "1.jpg"):
        (frames / name).touch()
    seen.append(stamp_video(frames))
    os.utime(frames / "0.jpg", ns=(2**62, 2**62))  # one that was there is written again
    seen.append(stamp_video(frames))
    (frames / "1.jpg").write_bytes(b"1")
    os.utime(frames / "1.jpg", ns=(1, 1))  # older than the newest
    seen.append(stamp_video(frames))
    (frames / "1.jpg").write_bytes(b"12")
    os.utime(frames / "1.jpg", ns=(1, 1))
    seen.append(stamp_video(frames))
    (frames / "1.jpg").rename(frames / "2.jpg")
    seen.append(stamp_video(frames))
    (frames / "2.jpg").unlink()
    seen.append(stamp_video(frames))
    assert len(set(seen)) == len(seen) == 9
    (frames / ".thumbnails").touch()
    assert stamp_video(frames) == seen[-1]


def test_made_clips_have_no_stamp() -> None:
    model = create_model("motionformer-tiny")
    assert set(_stamp_videos(open_source("motion:easy:4", model.config.input))) == {""}
    assert torch.is_tensor(open_source("motion:easy:4", model.config.input).read(0))
