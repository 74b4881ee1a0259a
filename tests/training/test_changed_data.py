"""A run goes on with the videos and labels that it began with, wherever they lie, and with no others."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from motionformer.data.motion import write_videos
from motionformer.errors import MotionformerError, TrainingError
from motionformer.training import make_recipe, train
from motionformer.training.module import TrainingModule
from motionformer.training.recipe import Recipe
from motionformer.training.run import find_finished
from motionformer.training.run_folder import RunFolder
from motionformer.training.sources import VideoSource, describe_data, open_sources
from tests.training.children import SMALL

Rows = list[list[str]]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "videos"
    write_videos(folder, "easy", 16, frames=4, size=16)
    return folder


@pytest.fixture
def recipe(videos: Path, tmp_path: Path) -> Recipe:
    """Two lists of the same sixteen videos, four steps of four."""
    rows = [[str(file), file.parent.name] for file in sorted(videos.rglob("*.mp4"))]
    write_rows(tmp_path, rows)
    lists = [f"data.train={tmp_path / 'tr.csv'}", f"data.val={tmp_path / 'va.csv'}"]
    return make_recipe(SMALL, [f"output={tmp_path / 'run'}", "epochs=1", "global_batch=4", "ema=0", *lists])


def write_rows(folder: Path, rows: Rows) -> None:
    for name in ("tr.csv", "va.csv"):
        with (folder / name).open("w", newline="") as stream:
            csv.writer(stream).writerows([["path", "label"], *rows])


def change_rows(folder: Path, change: Callable[[Rows], Rows]) -> None:
    with (folder / "tr.csv").open(newline="") as stream:
        write_rows(folder, change(list(csv.reader(stream))[1:]))


def stop_after(recipe: Recipe, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kept = TrainingModule.training_step

        def stop(self: TrainingModule, batch: Any, batch_idx: int) -> Any:
            if self.trainer.global_step == step:
                raise InterruptedError
            return kept(self, batch, batch_idx)

        patch.setattr(TrainingModule, "training_step", stop)
        with pytest.raises(InterruptedError):
            train(recipe, quiet=True)


def rename_a_class(rows: Rows) -> Rows:
    return [[path, "upwards" if label == "up" else label] for path, label in rows]


def swap_two_labels(rows: Rows) -> Rows:
    (path, label), (other_path, other_label) = rows[0], rows[-1]
    return [[path, other_label], *rows[1:-1], [other_path, label]]


CHANGES = [
    (lambda rows: rows[:11], r"data\.train had 16, now 11; data\.val had 16, now 11"),
    (rename_a_class, r"other classes \(without 'up', new 'upwards'\)\."),
    (lambda rows: [[rows[0][0], "a further one"], *rows[1:]], r"other classes \(new 'a further one'\)\."),
    (swap_two_labels, r"data\.train has as many, but with other paths, labels or times; data\.val"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=["fewer", "renamed", "further", "swapped"])
@pytest.mark.parametrize("finished", [True, False])
def test_other_data_are_refused(
    recipe: Recipe, tmp_path: Path, change: Callable[[Rows], Rows], message: str, finished: bool
) -> None:
    if finished:
        train(recipe, quiet=True)
    else:
        stop_after(recipe, 3)
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    change_rows(tmp_path, change)
    with pytest.raises(
        TrainingError, match=rf"run: the videos have changed .* began: .*{message}.*[Uu]se another output"
    ):
        train(recipe, quiet=True)
    assert before == {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}


@pytest.mark.parametrize("finished", [True, False])
def test_moved_videos_are_the_same(recipe: Recipe, videos: Path, tmp_path: Path, finished: bool) -> None:
    if finished:
        train(recipe, quiet=True)
    else:
        stop_after(recipe, 3)
    shutil.copytree(videos, tmp_path / "elsewhere")
    change_rows(tmp_path, lambda rows: [[p.replace(str(videos), str(tmp_path / "elsewhere")), x] for p, x in rows])
    assert train(recipe, quiet=True).last["step"] == 4


def test_a_run_goes_on_below_another_root_with_the_same_videos(recipe: Recipe, videos: Path, tmp_path: Path) -> None:
    change_rows(tmp_path, lambda rows: [[str(Path(path).relative_to(videos)), label] for path, label in rows])
    here, there = (replace(recipe, data=replace(recipe.data, root=str(p))) for p in (videos, tmp_path / "elsewhere"))
    stop_after(here, 3)
    shutil.copytree(videos, tmp_path / "elsewhere")
    assert train(there, quiet=True).last["step"] == 4


def test_a_checkpoint_that_does_not_say_its_data_goes_on(recipe: Recipe, tmp_path: Path) -> None:
    stop_after(recipe, 3)
    (saved,) = RunFolder(tmp_path / "run").checkpoints()
    checkpoint = saved.read()
    assert checkpoint["motionformer"].pop("data") == describe_data(open_sources(recipe))
    saved.write(checkpoint)
    assert "data" not in saved.read_notes()
    change_rows(tmp_path, swap_two_labels)
    assert train(recipe, quiet=True).last["step"] == 4


def test_a_finished_run_outlives_its_videos_and_older_cards(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, quiet=True)
    card = json.loads((tmp_path / "run/card.json").read_text())
    assert card["data"] == describe_data(open_sources(recipe))
    written = (tmp_path / "va.csv").read_text()
    (tmp_path / "va.csv").write_text(written + written.splitlines()[-1].rpartition(",")[0] + ",sideways\n")
    with pytest.raises(MotionformerError, match="sideways"):
        find_finished(recipe)
    (tmp_path / "va.csv").write_text(written)
    (tmp_path / "tr.csv").unlink()
    assert find_finished(recipe) is not None
    shutil.copy(tmp_path / "va.csv", tmp_path / "tr.csv")
    change_rows(tmp_path, swap_two_labels)
    with pytest.raises(TrainingError, match="the videos have changed"):
        find_finished(recipe)
    del card["data"]["classes"]
    (tmp_path / "run/card.json").write_text(json.dumps(card))
    assert find_finished(recipe) is not None


def test_fingerprints_depend_on_places_in_the_folder_only(recipe: Recipe, videos: Path, tmp_path: Path) -> None:
    shutil.copytree(videos, tmp_path / "b" / "videos")
    here, there = (open_sources(make_recipe(SMALL, splits(folder)))[0] for folder in (videos, tmp_path / "b/videos"))
    assert isinstance(here, VideoSource)
    assert here.fingerprint() == there.fingerprint()
    (tmp_path / "b/videos/up").rename(tmp_path / "b/videos/upwards")
    assert open_sources(make_recipe(SMALL, splits(tmp_path / "b/videos")))[0].fingerprint() != here.fingerprint()


def splits(folder: Path) -> list[str]:
    return [f"data.train={folder}", f"data.val={folder}", "data.train_split=", "data.val_split="]


def test_changed_classes_are_named_also_of_several_tasks(tmp_path: Path) -> None:
    part = {"how": "", "clips": 3, "fingerprint": "x"}

    def data(classes: Any) -> dict[str, Any]:
        return {"train": part, "val": part, "classes": classes}

    two = {"verb": ["take", "put"], "noun": ["cup"]}
    RunFolder(tmp_path).check_same_data(data(two), data(dict(two)))
    with pytest.raises(TrainingError, match=r"other classes \(new 'noun pan'\)"):
        RunFolder(tmp_path).check_same_data(data(two), data({**two, "noun": ["cup", "pan"]}))
    with pytest.raises(TrainingError, match=r"other classes \(in another order\)"):
        RunFolder(tmp_path).check_same_data(data(["a", "b"]), data(["b", "a"]))
    with pytest.raises(TrainingError, match=r"without '0', '1', '2', '3' and 6 more"):
        RunFolder(tmp_path).check_same_data(data([str(i) for i in range(10)]), data([]))
