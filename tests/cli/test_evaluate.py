"""`motionformer evaluate`, as a user types it."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data.motion import CLASSES, write_videos
from motionformer.errors import MotionformerError
from motionformer.inference import Results, open_source
from motionformer.models import Motionformer, create_model
from motionformer.weights import load_model
from tests.video.numbered import write_damaged, write_video

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def tiny(**options: object) -> Motionformer:
    torch.manual_seed(0)
    model = create_model("motionformer-tiny", frames=4, size=32, dim=32, depth=1, num_heads=2, **options)  # type: ignore[arg-type]
    torch.nn.init.normal_(model.head.classifier.weight)  # type: ignore[union-attr, arg-type]
    return model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`videos/`: nine clips of eight classes, one of them broken; `model/`: knows the classes, in another order."""
    root = tmp_path_factory.mktemp("place")
    write_videos(root / "videos", "easy", 8, frames=12, size=32)
    (root / "videos/up/broken.mp4").write_text("no video")
    tiny(labels=CLASSES).save_pretrained(root / "model")
    return root


def test_it_prints_tables_and_keeps_everything(place: Path, tmp_path: Path) -> None:
    options = ["--views", "2", "--crops", "3", "--workers", "0", "--out", str(tmp_path), "--pictures"]
    result = runner.invoke(app, ["evaluate", str(place / "model"), str(place / "videos"), *options])
    assert result.exit_code == 0, result.output
    assert "9 videos, 2 views × 3 crops" in result.output
    assert "all videos, failed ones wrong" in result.output
    assert "readable videos only" in result.output
    assert "1 of 9 videos could not be read" in result.output
    assert "moov atom not found" in result.output or "Invalid data" in result.output
    names = {file.name for file in tmp_path.iterdir()}
    files = {"results.csv", "results.npz", "summary.json", "classes.csv", "confusion.csv"}
    assert names == files | {"confusion.png", "reliability.png", "views.png"}


def test_the_scores_are_the_models_in_its_own_order(place: Path, tmp_path: Path) -> None:
    """Folders are in alphabetical order, the model's classes are not: labels go by name."""
    options = ["--views", "2", "--workers", "0", "--batch", "3", "--out", str(tmp_path)]
    runner.invoke(app, ["evaluate", str(place / "model"), str(place / "videos"), *options], catch_exceptions=False)
    found = Results.load(tmp_path)
    model = load_model(place / "model")
    views = open_source(place / "videos", model.config.input, views=2).read(0).views
    with torch.inference_mode():
        scores = model(views).softmax(-1).mean(0)  # type: ignore[union-attr]
    named = dict(zip(CLASSES, scores.tolist(), strict=True))
    order = found.header.class_names["class"]
    assert order == CLASSES != tuple(sorted(CLASSES))
    right = [
        Path(path).parent.name == order[label] for path, label in zip(found.paths, found.labels["class"], strict=True)
    ]
    assert all(right)
    np.testing.assert_allclose(found.averaged("class")[0], [named[name] for name in order], atol=1e-6)
    with (tmp_path / "results.csv").open() as file:
        assert next(csv.DictReader(file))["prediction_name"] == max(named, key=lambda name: named[name])


def test_data_need_not_hold_every_class(place: Path, tmp_path: Path) -> None:
    """With the model's own names, with names from a file, and in a list."""
    for name in ("up", "left"):
        shutil.copytree(place / "videos" / name, tmp_path / "two" / name)
    (tmp_path / "names.txt").write_text("\n".join(CLASSES))
    rows = [f"{path},{path.parent.name}" for path in sorted((tmp_path / "two").rglob("*.mp4"))]
    (tmp_path / "two.csv").write_text("\n".join(["path,label", *rows]))
    for words in (["two"], ["two", "--class-names", str(tmp_path / "names.txt")], ["two.csv"]):
        words[0] = str(tmp_path / words[0])
        result = runner.invoke(app, ["evaluate", str(place / "model"), *words, "--workers", "0", "--json"])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)["tasks"]["class"]
        assert {one["class"]: one["videos"] for one in found["classes"] if one["videos"]} == {"up": 2, "left": 1}


def test_classes_called_by_numbers_are_found_in_lists_and_folders(tmp_path: Path) -> None:
    """A list that was written here calls them `class 2`, in alphabetical order; users write 2."""
    write_videos(tmp_path / "all", "easy", 8, frames=12, size=32)
    videos = sorted((tmp_path / "all").rglob("*.mp4"))[:2]
    tiny(labels=tuple(sorted(f"class {number}" for number in range(12)))).save_pretrained(tmp_path / "model")
    (tmp_path / "numbers.csv").write_text(f"{videos[0]},2\n{videos[1]},10\n")
    for video, name in zip(videos, ("2", "10"), strict=True):
        (tmp_path / "folders" / name).mkdir(parents=True)
        shutil.copy(video, tmp_path / "folders" / name)
    for data in ("numbers.csv", "folders"):
        words = ["evaluate", str(tmp_path / "model"), str(tmp_path / data), "--workers", "0", "--json"]
        found = json.loads(runner.invoke(app, words, catch_exceptions=False).stdout)["tasks"]["class"]["classes"]
        assert {one["class"]: one["videos"] for one in found if one["videos"]} == {"2": 1, "10": 1}


def test_json_is_nothing_but_json(place: Path) -> None:
    options = ["--workers", "0", "--json"]
    result = runner.invoke(app, ["evaluate", str(place / "model"), str(place / "videos"), *options])
    summary = json.loads(result.stdout)
    assert summary["failed"] == 1
    assert summary["failures"][0]["path"].endswith("broken.mp4")
    found = summary["tasks"]["class"]
    assert found["all"]["top1"] == pytest.approx(found["readable"]["top1"] * 8 / 9)
    assert sum(one["videos"] for one in found["classes"]) == 9


def test_the_same_command_again_does_nothing_again(place: Path, tmp_path: Path) -> None:
    data = tmp_path / "videos"
    shutil.copytree(place / "videos", data)
    words = ["evaluate", str(place / "model"), str(data), "--workers", "0", "--out", str(tmp_path / "out"), "--json"]
    first = runner.invoke(app, words).stdout
    for file in data.rglob("*.mp4"):  # the results do not need their contents any more
        facts = file.stat()
        file.write_bytes(bytes(facts.st_size))
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    again = runner.invoke(app, words)
    assert again.stdout == first
    assert "finished earlier; nothing was computed" in again.stderr


def test_other_videos_are_not_given_the_stored_result(place: Path, tmp_path: Path) -> None:
    data = tmp_path / "videos"
    shutil.copytree(place / "videos", data)
    words = ["evaluate", str(place / "model"), str(data), "--workers", "0", "--out", str(tmp_path / "out"), "--json"]
    assert json.loads(runner.invoke(app, words).stdout)["failed"] == 1
    shutil.copy(data / "up/00002.mp4", data / "up/broken.mp4")
    assert json.loads(runner.invoke(app, words).stdout)["failed"] == 0  # repaired
    shutil.rmtree(data)
    write_videos(data, "easy", 8, frames=12, size=32, seed=1)
    shutil.copy(data / "up/00002.mp4", data / "up/broken.mp4")
    with pytest.raises(MotionformerError, match="9 of 9 videos have another size or modification time"):
        runner.invoke(app, words, catch_exceptions=False)


def test_strict_makes_a_failed_video_an_error(place: Path) -> None:
    words = ["evaluate", str(place / "model"), str(place / "videos"), "--workers", "0"]
    assert runner.invoke(app, [*words, "--strict"]).exit_code == 1
    assert runner.invoke(app, words).exit_code == 0


def test_the_built_in_benchmark(place: Path) -> None:
    result = runner.invoke(app, ["evaluate", str(place / "model"), "motion:easy:16", "--workers", "0", "--json"])
    summary = json.loads(result.stdout)
    assert summary["videos"] == 16
    assert summary["data"] == "motion:easy (test, seed 0)"
    assert all(one["videos"] == 2 for one in summary["tasks"]["class"]["classes"])


def test_without_class_names_the_user_is_told(tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path / "model")
    result = runner.invoke(app, ["evaluate", str(tmp_path / "model"), "motion:easy:8", "--workers", "0"])
    assert "outputs are taken to be in the data's order: 'right', 'up-right'" in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"num_classes": 5}, [], "the model has 5 classes, the data has 8"),
        ({"labels": tuple("abcdefgh")}, [], r"class folder 'down' is not among the 8 classes \(a, b"),
        ({}, ["--crops", "2"], "must be 1"),
        ({}, ["--split", "all"], "no split 'all'"),
    ],
)
def test_what_does_not_fit_is_said(
    place: Path, tmp_path: Path, change: dict[str, object], options: list[str], message: str
) -> None:
    tiny(**change).save_pretrained(tmp_path / "model")
    words = ["evaluate", str(tmp_path / "model"), str(place / "videos"), *options]
    with pytest.raises(MotionformerError, match=message):
        runner.invoke(app, words, catch_exceptions=False)


def test_another_model_is_not_mixed_in(place: Path, tmp_path: Path) -> None:
    words = ["motion:easy:8", "--workers", "0", "--out", str(tmp_path / "out")]
    runner.invoke(app, ["evaluate", str(place / "model"), *words], catch_exceptions=False)
    other = tiny(labels=CLASSES)
    torch.nn.init.zeros_(other.norm.bias[:1])
    torch.nn.init.ones_(other.norm.bias[1:])
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(MotionformerError, match=r"differs from this one .* in model fingerprint"):
        runner.invoke(app, ["evaluate", str(tmp_path / "other"), *words], catch_exceptions=False)


def test_wrong_usage_exits_with_two(place: Path) -> None:
    for options in (["--device", "abacus"], ["--pictures"], ["--views", "0"], ["--precision", "64"]):
        result = runner.invoke(app, ["evaluate", str(place / "model"), "motion:easy", *options])
        assert result.exit_code == 2, (options, result.output)


def test_a_model_alone_is_not_taken_for_a_recipe(place: Path) -> None:
    for model in ("motion-tiny", str(place / "model")):
        result = runner.invoke(app, ["evaluate", model])
        assert result.exit_code == 2
        assert "give the data to evaluate it on" in " ".join(result.output.replace("│", "").split())


def test_an_epic_submission(tmp_path: Path) -> None:
    """The published list's columns, the test part without labels: scores and a submission, no figures."""
    write_videos(tmp_path / "videos", "easy", 8, frames=12, size=32)
    for number, file in enumerate(sorted((tmp_path / "videos").rglob("*.mp4"))):
        file.rename(tmp_path / f"P01_{number:02d}.MP4")
    rows = [f"P01_{i:02d}_0,P01,P01_{i:02d},00:00:00.25,00:00:01.25" for i in range(8)]
    header = "narration_id,participant_id,video_id,start_timestamp,stop_timestamp"
    (tmp_path / "EPIC_100_test_timestamps.csv").write_text("\n".join([header, *rows]))
    model = tiny()
    config = replace(model.config, num_classes={"verb": 97, "noun": 300})
    Motionformer(config).save_pretrained(tmp_path / "model")
    words = ["evaluate", str(tmp_path / "model"), str(tmp_path), "--split", "test", "--workers", "0"]
    result = runner.invoke(app, [*words, "--challenge", str(tmp_path / "test.json")])
    assert result.exit_code == 0, result.output
    assert "no labels: nothing to measure; --output DIR keeps the scores" in result.output
    sent = json.loads((tmp_path / "test.json").read_text())["results"]
    assert list(sent) == [f"P01_{i:02d}_0" for i in range(8)]
    assert len(sent["P01_00_0"]["action"]) == 100


def test_real_videos(shared: Path, tmp_path: Path) -> None:
    tiny(num_classes=5).save_pretrained(tmp_path / "model")
    data = shared / "data" / "gestures"
    if not data.is_dir():
        pytest.skip("no gestures beside the checkout")
    words = ["evaluate", str(tmp_path / "model"), str(data), "--split", "test", "--workers", "0", "--json"]
    summary = json.loads(runner.invoke(app, words).stdout)
    assert (summary["videos"], summary["failed"]) == (66, 0)


def test_a_recipe_brings_its_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "small.yaml"
    recipe.write_text(
        "name: small\nmodel: {variant: motionformer-tiny, changes: {depth: 1}}\nglobal_batch: 8\nepochs: 1\n"
        "data: {train_clips: 8, val_clips: 16, workers: 0}\n"
    )
    missing = runner.invoke(app, ["evaluate", str(recipe)])
    assert missing.exit_code == 2
    assert "no finished run" in missing.output
    assert runner.invoke(app, ["train", str(recipe), "--quiet"]).exit_code == 0
    shown = runner.invoke(app, ["evaluate", str(recipe), "--workers", "0", "--json"])
    assert shown.exit_code == 0, shown.output
    card = json.loads((tmp_path / "runs/small/card.json").read_text())
    summary = json.loads(shown.stdout)
    assert summary["videos"] == 16
    assert summary["tasks"]["class"]["all"]["top1"] == pytest.approx(card["results"]["last"]["top1"])


def test_a_recipe_is_tested_on_the_split_of_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, (split, count) in enumerate({"train": 16, "val": 8, "test": 24}.items()):
        write_videos(tmp_path / "data" / split, "easy", count, frames=8, size=48, seed=seed)
    recipe = tmp_path / "small.yaml"
    recipe.write_text(
        "name: small\nmodel: {variant: motionformer-tiny, changes: {depth: 1}}\nglobal_batch: 8\nepochs: 1\n"
        "data: {train: data, val: data, workers: 0}\ntest: {split: test}\n"
    )
    assert runner.invoke(app, ["train", str(recipe), "--quiet"], catch_exceptions=False).exit_code == 0
    shown = runner.invoke(app, ["evaluate", str(recipe), "--workers", "0", "--json"], catch_exceptions=False)
    assert json.loads(shown.stdout)["videos"] == 24


def test_repeated_frames_and_damage_are_told(place: Path, tmp_path: Path) -> None:
    for name in ("up", "down"):
        (tmp_path / "videos" / name).mkdir(parents=True)
    write_damaged(tmp_path / "damaged.mp4").rename(tmp_path / "videos" / "up" / "damaged.mp4")
    write_video(tmp_path / "videos" / "down" / "slow.mp4", num_frames=20, fps=5)
    words = ["evaluate", str(place / "model"), str(tmp_path / "videos"), "--views", "1", "--workers", "0"]
    frames = load_model(place / "model").config.input.frames
    result = runner.invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    printed = " ".join(result.output.split())
    assert "1 of 2 videos show frames several times" in printed
    assert "1 of 2 videos are damaged where they were read" in printed
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [Path(one["path"]).name for one in summary["damaged"]] == ["damaged.mp4"]
    assert summary["read"]["videos_with_repeated_frames"] == summary["read"]["damaged_videos"] == 1
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = {Path(row["path"]).name: row for row in csv.DictReader(file)}
    assert (rows["damaged.mp4"]["damaged"], rows["slow.mp4"]["damaged"]) == ("true", "false")
    assert rows["damaged.mp4"]["distinct_frames"] == rows["damaged.mp4"]["frames"] == str(frames)
    assert int(rows["slow.mp4"]["distinct_frames"]) < frames
    loaded = Results.load(tmp_path / "out")
    assert sorted(one.damaged or False for one in loaded.facts.values()) == [False, True]
    again = runner.invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert "damaged where they were read" in " ".join(again.output.split()), "also of a finished result"
    by_frames = runner.invoke(app, [*words, "--sample-by", "frames", "--json"])
    assert json.loads(by_frames.stdout)["read"]["videos_with_repeated_frames"] == 0
    motion = runner.invoke(app, ["evaluate", str(place / "model"), "motion:easy:8", "--sample-by", "frames"])
    assert "leave sample_by out" in str(motion.exception)
