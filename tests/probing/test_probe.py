"""A probe from beginning to end: the model, the report, what is said and what is refused."""

import csv
import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from motionformer import FeatureExtractor, Predictor, evaluate, load_model, trace
from motionformer.cli import app
from motionformer.errors import AnnotationError, OutputError, RecipeError, TraceError
from motionformer.export import export_model
from motionformer.probing import ProbeResult, cache, heads, probe
from motionformer.runs import write_atomically

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
SMALL: dict[str, Any] = {"frames": 4, "size": 32, "num_folds": 3, "quiet": True}


def test_the_model_predicts_what_the_probe_scored(probed: ProbeResult) -> None:
    results = evaluate(str(probed.model), str(probed.folder / "val.csv"), show_progress=False)
    scores, labels = results.averaged("class"), results.labels["class"]
    right = scores.argmax(axis=1) == labels
    assert len(results) == probed.report["test"]["videos"]
    assert int(right.sum()) == probed.report["test"]["correct"]
    found = {
        path: float(row.max()) for path, row, is_right in zip(results.paths, scores, right, strict=True) if not is_right
    }
    expected = {one["path"]: one["score"] for one in probed.report["wrong"]}
    assert found == pytest.approx(expected, abs=5e-3)  # features are kept in half precision
    assert results.overlap["videos"] == 0
    assert results.overlap["known"]


def test_the_model_is_an_ordinary_one(probed: ProbeResult, clips: Path, tmp_path: Path) -> None:
    video = next(clips.rglob("*.mp4"))
    model = load_model(probed.model)
    assert model.config.labels == ("left", "right")
    assert Predictor(model)(video).top(1)[0].label in ("left", "right")
    mass = trace(model, video, what="class-token").tracks[0].map.mass
    assert mass.shape == (4,)
    assert mass.min() > 0.1  # every frame's class token looks at its own frame
    features = FeatureExtractor(model)(video).values
    assert features.shape == (1, 64)
    assert trace(model, video, what="gradcam", layer=0).label in ("left", "right")
    assert export_model(model, tmp_path / "model.pt2", batch_sizes=(2,)).path.is_file()
    with pytest.raises(TraceError, match="never looks into another frame"):
        trace(model, video, point=(5.0, 5.0))


def test_the_report_tells_everything_in_one_file(probed: ProbeResult) -> None:
    report = json.loads((probed.folder / "report.json").read_text())
    assert report == json.loads(json.dumps(probed.report))
    assert [head["head"] for head in report["heads"]] == ["linear", "side-by-side", "motion", "paths"]
    best = max(head["cross_validation"]["correct"] for head in report["heads"])
    assert best == report["cross_validation"]["correct"]
    for head in report["heads"]:
        has_curve = head["head"] in ("linear", report["chosen"])
        assert [point["clips"] for point in head["curve"]][:3] == (
            [1.0, 2.0, 5.0] if has_curve else [pytest.approx(20 / 3)]
        )
        assert max(one["correct"] for one in head["sweep"]) == head["cross_validation"]["correct"]
    assert sum(map(sum, report["confusion"])) == report["test"]["videos"]
    page = (probed.folder / "report.html").read_text()
    assert page.count("data:image/jpeg;base64,") == len(report["wrong"]) > 0
    assert 'src="http' not in page
    assert "<svg" in page
    more = report["what_more_clips_would_bring"]
    assert ("It is an extrapolation" if more else "it is not extended") in page


@pytest.mark.usefixtures("no_page")
def test_the_second_run_computes_no_features_and_says_the_same(
    probed: ProbeResult, clips: Path, backbone: Path, tmp_path: Path
) -> None:
    again = probe(clips, backbone, tmp_path / "out", cache=probed.folder.parent / "cache", **SMALL)
    assert again.report["features"]["computed"] == 0
    for key in ("test", "cross_validation", "confusion", "chosen", "near_duplicates"):
        assert again.report[key] == probed.report[key]
    ours, theirs = (load_model(one.model).state_dict() for one in (probed, again))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_another_backbone_and_other_clips_get_features_of_their_own(
    probed: ProbeResult, clips: Path, backbone: Path, tmp_path: Path
) -> None:
    folder = probed.folder.parent / "cache"
    options = ["--cache", str(folder), "--frames", "2", "--size", "32", "--folds", "3", "--heads", "linear"]
    words = ["probe", str(clips), "--backbone", str(backbone), "--output", str(tmp_path / "out"), *options]
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "features of 0 of 24 clips are in" in result.output
    assert "image.safetensors (4 frames of 32 × 32) are there too: of another backbone or other clips" in result.output
    assert "held-out videos correct" in result.output
    assert "report.html" in result.output
    assert len(list(folder.glob("*/about.json"))) == 2
    as_json = runner.invoke(app, [*words, "--json"], catch_exceptions=False)
    assert json.loads(as_json.stdout)["features"]["computed"] == 0


@pytest.mark.usefixtures("no_page")
def test_a_video_model_is_a_backbone_too(clips: Path, tmp_path: Path) -> None:
    """The shipped model was trained on discs like these: on its frozen features they are told apart."""
    made = probe(clips, "motion-tiny", tmp_path / "out", cache=tmp_path / "cache", heads=["linear"], quiet=True)
    assert made.report["cross_validation"]["accuracy"] == 1.0
    assert made.report["test"]["accuracy"] == 1.0
    known = load_model(made.model).training_data
    assert known is not None
    assert len(known.train) > 20  # its own training clips and ours


@pytest.mark.usefixtures("no_page")
def test_copies_and_near_copies_are_found(clips: Path, backbone: Path, tmp_path: Path) -> None:
    """A copy stays on its original's side; the same frames in another file are near-duplicates, and named."""
    from motionformer.data import open_dataset
    from motionformer.finetuning.split import open_splits

    folder = tmp_path / "videos"
    shutil.copytree(clips, folder)
    original = min((folder / "left").iterdir())
    shutil.copy(original, folder / "left" / "copy.mp4")
    train, val = open_splits(folder, 0.2, 0)
    sides = [{record.path.name for record in part} for part in (train, val)]
    assert any({original.name, "copy.mp4"} <= side for side in sides)
    held = val.records[0]
    source = next(record for record in train if record.label == held.label)
    held.path.write_bytes(source.path.read_bytes() + b"\\0" * 64)  # another fingerprint, the same frames
    shutil.move(held.path, tmp_path / "near.mp4")
    lists = tmp_path / "list"
    for part, name in ((train, "train"), (val, "val")):
        for record in part:
            target = lists / name / open_dataset(folder).label_name(record.label)
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(record.path if record is not held else tmp_path / "near.mp4", target / record.path.name)
    made = probe(lists, backbone, tmp_path / "out", cache=tmp_path / "cache", heads=["linear"], **SMALL)
    pairs = made.report["near_duplicates"]["pairs"]
    assert [Path(pair["held_out"]).name for pair in pairs] == [held.path.name]
    assert Path(pairs[0]["training"]).name == source.path.name
    assert pairs[0]["cosine"] > 0.999


@pytest.mark.usefixtures("no_page")
class TestGroups:
    """A person is on one side of every split."""

    def lists(self, clips: Path, file: Path, group: Any) -> Path:
        with file.open("w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["path", "label", "group"])
            for number, path in enumerate(sorted(clips.rglob("*.mp4"))):
                rows.writerow([path, path.parent.name, group(number, path.parent.name)])
        return file

    def test_are_never_on_both_sides(self, probed: ProbeResult, clips: Path, backbone: Path, tmp_path: Path) -> None:
        file = self.lists(clips, tmp_path / "list.csv", lambda number, _: f"person {number % 6}")
        cached = probed.folder.parent / "cache"
        made = probe(file, backbone, tmp_path / "out", cache=cached, heads=["linear"], **SMALL)
        assert made.report["features"]["computed"] == 0  # the same files
        sides = [
            {row["group"] for row in csv.DictReader((made.folder / name).open())} for name in ("train.csv", "val.csv")
        ]
        assert sides[0] | sides[1] == {f"person {i}" for i in range(6)}
        assert not sides[0] & sides[1]
        groups = {one["group"]: one for one in made.report["groups"]}
        assert {name for name, one in groups.items() if "test" in one} == sides[1]
        assert sum(one["cross_validation"]["videos"] for one in groups.values() if "test" not in one) == 20

    def test_a_class_of_one_person_is_refused(self, clips: Path, backbone: Path, tmp_path: Path) -> None:
        file = self.lists(clips, tmp_path / "list.csv", lambda _, label: f"who goes {label}")
        with pytest.raises(AnnotationError, match="'left' cannot be in training and in validation by groups"):
            probe(file, backbone, tmp_path / "out", cache=tmp_path, **SMALL)

    def test_a_given_split_with_a_person_on_both_sides_is_refused(
        self, clips: Path, backbone: Path, tmp_path: Path
    ) -> None:
        for number, path in enumerate(sorted(clips.rglob("*.mp4"))):
            target = tmp_path / "videos" / ("val" if number % 4 == 0 else "train") / path.parent.name
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / f"anna_{number}.mp4")
        with pytest.raises(RecipeError, match="group 'anna' is in training and in val"):
            probe(tmp_path / "videos", backbone, tmp_path / "out", group_by="prefix", **SMALL)
        with pytest.raises(RecipeError, match="lies in no folder of a group"):
            probe(clips, backbone, tmp_path / "out", group_by="folder", **SMALL)


class TestWrongInput:
    def test_a_class_with_one_clip(self, clips: Path, backbone: Path, tmp_path: Path) -> None:
        shutil.copytree(clips, tmp_path / "videos")
        (tmp_path / "videos" / "up").mkdir()
        shutil.copy(next(clips.rglob("*.mp4")), tmp_path / "videos" / "up" / "a.mp4")
        with pytest.raises(AnnotationError, match="class 'up' has a single video; two are needed"):
            probe(tmp_path / "videos", backbone, tmp_path / "out", **SMALL)
        assert not (tmp_path / "out").exists()

    def test_unreadable_clips_are_left_out_and_named(self, clips: Path, backbone: Path, tmp_path: Path) -> None:
        shutil.copytree(clips, tmp_path / "videos")
        broken = [tmp_path / "videos" / "left" / f"broken{i}.mp4" for i in range(4)]
        for file in broken:
            file.write_text(f"no video, {file}")
        made = probe(tmp_path / "videos", backbone, tmp_path / "out", cache=tmp_path / "c", heads=["linear"], **SMALL)
        assert {one["path"] for one in made.report["unreadable"]} == set(map(str, broken))
        assert made.report["videos"]["train"] + made.report["videos"]["test"] == 24
        assert "could not be read" in (made.folder / "report.html").read_text()
        for file in (tmp_path / "videos" / "right").iterdir():
            file.write_text(f"broken too, {file}")
        with pytest.raises(AnnotationError, match="no training video of class 'right' can be read"):
            probe(tmp_path / "videos", backbone, tmp_path / "out", cache=tmp_path / "c", **SMALL)

    def test_heads_and_sizes_that_do_not_exist(self, clips: Path, backbone: Path, tmp_path: Path) -> None:
        words = ["probe", str(clips), "--backbone", str(backbone), "--output", str(tmp_path / "out")]
        assert "no size, such as 500MB" in runner.invoke(app, [*words, "--cache-size", "much"]).output
        with pytest.raises(RecipeError, match="there is no head 'deep'; there are linear"):
            probe(clips, backbone, tmp_path / "out", heads=["deep"])


@pytest.mark.usefixtures("no_page")
class TestCache:
    def test_a_full_disk_and_a_kill_lose_nothing(
        self, clips: Path, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cache, "_PART", 8)
        parts = 0

        def full(file: Path, content: bytes) -> None:
            nonlocal parts
            parts += file.suffix == ".safetensors"
            if parts == 2:
                raise OSError(errno.ENOSPC, "No space left on device", str(file))
            write_atomically(file, content)

        with monkeypatch.context() as patch:
            patch.setattr(cache, "write_atomically", full)
            with pytest.raises(OutputError, match=r"No space left on device\. 8 clips are kept"):
                probe(clips, backbone, tmp_path / "out", cache=tmp_path / "cache", **SMALL)
        torn = next((tmp_path / "cache").rglob("*.safetensors"))
        (torn.parent / f".{torn.name}.1.part").write_bytes(torn.read_bytes()[:100])  # what a kill leaves
        made = probe(clips, backbone, tmp_path / "out", cache=tmp_path / "cache", heads=["linear"], **SMALL)
        assert made.report["features"]["computed"] == 16

    def test_a_damaged_part_and_a_changed_file_are_computed_again(
        self, clips: Path, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cache, "_PART", 8)
        shutil.copytree(clips, tmp_path / "videos")

        def run() -> int:
            made = probe(
                tmp_path / "videos", backbone, tmp_path / "out", cache=tmp_path / "c", heads=["linear"], **SMALL
            )
            return int(made.report["features"]["computed"])

        assert run() == 24
        part = next((tmp_path / "c").rglob("*.safetensors"))
        part.write_bytes(part.read_bytes()[:50])
        assert run() == 8
        next((tmp_path / "videos" / "left").iterdir()).touch()
        assert run() == 1

    def test_what_is_kept_fits_the_budget(self, clips: Path, backbone: Path, tmp_path: Path) -> None:
        def run(frames: int, budget: int) -> dict[str, Any]:
            made = probe(
                clips,
                backbone,
                tmp_path / "out",
                cache=tmp_path / "c",
                cache_size=budget,
                heads=["linear"],
                **(SMALL | {"frames": frames}),
            )
            taken = sum(file.stat().st_size for file in (tmp_path / "c").rglob("*.safetensors"))
            assert taken < 1.1 * budget
            return dict(made.report["features"])

        whole = run(4, 1_000_000)
        assert whole["tokens"]
        assert whole["bytes"] == 2 * 24 * 64 * (1 + 4 + 3 + 5 + 4 * 17)
        pooled = run(4, 100_000)
        assert not pooled["tokens"]
        assert len(list((tmp_path / "c").glob("*/about.json"))) == 1  # the older set made room
        with pytest.raises(OutputError, match=r"take 0\.0 MB, the budget is"):
            run(4, 1000)


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("head", ["attentive-positions", "trajectory"])
def test_heads_that_learn_become_models_too(
    head: str, probed: ProbeResult, clips: Path, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = heads.KINDS[head]
    monkeypatch.setitem(heads.KINDS, head, replace(kind, settings=kind.settings[-1:], epochs=4))
    made = probe(clips, backbone, tmp_path / "out", heads=[head], cache=probed.folder.parent / "cache", **SMALL)
    assert made.report["features"]["computed"] == 0
    results = evaluate(str(made.model), str(made.folder / "val.csv"), show_progress=False)
    scores, labels = results.averaged("class"), results.labels["class"]
    assert int((scores.argmax(axis=1) == labels).sum()) == made.report["test"]["correct"]
    found = {path: float(row.max()) for path, row in zip(results.paths, scores, strict=True)}
    assert {one["path"]: found[one["path"]] for one in made.report["wrong"]} == pytest.approx(
        {one["path"]: one["score"] for one in made.report["wrong"]}, abs=1e-2
    )
    with pytest.raises(RecipeError, match="reads all tokens, and those of 24 clips do not fit"):
        probe(clips, backbone, tmp_path / "out", heads=[head], cache=tmp_path, cache_size=100_000, **SMALL)
