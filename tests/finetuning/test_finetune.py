"""Fine-tuning: the split is fair and repeatable, the recipe fits videos and machine, the lists lead back to them."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from motionformer import load_model
from motionformer.data import open_dataset
from motionformer.data.lists import write_list
from motionformer.data.motion import CLASSES, write_videos
from motionformer.errors import AnnotationError, OutputError, RecipeError
from motionformer.finetuning import FinetunePlan, finetune, plan_finetune
from motionformer.finetuning.options import (
    BASIS,
    FinetuneOptions,
    Hardware,
    VideoFacts,
    _clips_that_fit,
    _initial_model_config,
    config_changes,
    finetune_recipe,
)
from motionformer.finetuning.run import _inspect
from motionformer.finetuning.split import _split_by_class, note_shared_files, open_splits
from motionformer.models.config import ModelConfig
from motionformer.models.training_data import TrainingData
from motionformer.models.variants import VARIANTS, create_model
from motionformer.training.model import build_config, build_model
from motionformer.training.recipe import Recipe, load_recipe, make_recipe
from motionformer.training.run import _held_out_overlap
from motionformer.training.sources import VideoSource, describe_mirroring, open_sources
from tests.weights.test_image import timm_weights

CPU, GPU = Hardware(False, 16 << 30, 2), Hardware(True, 32 << 30, 16)
SHORT, LONG = VideoFacts(30, 2.5, 120), VideoFacts(900, 30.0, 360)


def advise(
    options: FinetuneOptions | None = None, facts: VideoFacts = SHORT, hardware: Hardware = CPU, num_train: int = 500
) -> Recipe:
    return finetune_recipe(options or FinetuneOptions(name="x"), facts, hardware, num_train=num_train)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "moves"
    write_videos(folder, "easy", 40, frames=8, size=32)
    return folder


@pytest.mark.parametrize("name", VARIANTS)
def test_any_model_can_be_said_as_changes(name: str) -> None:
    recipe = make_recipe({"name": "x", "model": {"variant": BASIS, "changes": config_changes(VARIANTS[name])}})
    assert build_config(recipe, 7) == replace(VARIANTS[name], num_classes=7)


def test_sizes_follow_from_machine_and_videos() -> None:
    def config(recipe: Recipe) -> ModelConfig:
        return build_config(recipe, 5)

    small, large = config(advise()), config(advise(hardware=GPU))
    assert (small.dim, small.input.height) < (large.dim, large.input.height)
    assert (small.input.sampling, small.input.views) == ("segments", 1)
    long = config(advise(facts=LONG))
    assert (long.input.sampling, long.input.stride) == ("stride", 4)
    assert long.input.views > 1
    few = config(advise(facts=VideoFacts(5, 0.2, 30)))
    assert (few.input.frames, few.input.height) == (4, 24)  # no more than there is, in whole tubelets and patches
    assert config(advise(FinetuneOptions(name="x", frames=16, size=96, attention="joint"))).grid == (8, 12, 12)
    assert advise(num_train=20).global_batch == 20
    assert (advise().engine.precision, advise(hardware=GPU).engine.precision) == ("32-true", "bf16-mixed")


def test_clips_at_once_fit_the_memory() -> None:
    config = build_config(advise(), 5)
    one = _clips_that_fit(config, CPU)
    assert _clips_that_fit(config, replace(CPU, memory=2 * CPU.memory)) >= 2 * one
    tight = advise(hardware=replace(CPU, memory=150 << 20))
    assert 1 <= tight.engine.max_clips < tight.global_batch
    assert advise().engine.max_clips == 0


def test_without_weights_the_head_sees_motion() -> None:
    config = build_config(advise(), 5)
    assert (config.readout, config.dim, config.input.height) == ("motion", 96, 48)
    assert build_config(advise(FinetuneOptions(name="x", readout="class")), 5).readout == "class"
    assert build_config(advise(FinetuneOptions(name="x", init_from="motion-tiny")), 5).readout == "class"  # its own


def test_what_the_user_says_wins() -> None:
    recipe = advise(FinetuneOptions(name="x", train="last:2", epochs=3, lr=0.5, batch_size=8, seed=4, output="here"))
    assert (recipe.model.train, recipe.epochs, recipe.optimiser.lr, recipe.global_batch) == ("last:2", 3, 0.5, 8)
    assert (recipe.seed, recipe.folder, recipe.data.train) == (4, Path("here"), "here/train.csv")
    assert recipe.optimiser.lr_batch == 8  # the rate is for the batch used
    assert recipe.augmentation.flip_by_name


def test_a_rate_of_zero_is_not_taken_for_none() -> None:
    with pytest.raises(RecipeError, match=r"optimiser\.lr \(0.0\) must be positive"):
        advise(FinetuneOptions(name="x", lr=0.0))


def test_the_split_is_stratified_repeatable_and_moves_along(videos: Path, tmp_path: Path) -> None:
    train, val = _split_by_class(open_dataset(videos), 0.2, 0, videos)
    assert set(val.counts().values()) == {1}
    assert set(train.counts().values()) == {4}
    assert not {record.path for record in train} & {record.path for record in val}
    moved = tmp_path / "elsewhere"
    shutil.copytree(videos, moved)
    again = _split_by_class(open_dataset(moved), 0.2, 0, moved)[1]
    assert [r.path.relative_to(moved) for r in again] == [r.path.relative_to(videos) for r in val]
    other = _split_by_class(open_dataset(videos), 0.2, 1, videos)[1]
    assert {record.path for record in other} != {record.path for record in val}


def test_a_class_of_one_video_is_refused(tmp_path: Path) -> None:
    for name in ("a/1.mp4", "a/2.mp4", "b/1.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(AnnotationError, match="class 'b' has a single video"):
        _split_by_class(open_dataset(tmp_path))


@pytest.mark.parametrize("classes", [("left, up", "right"), ("1", "7"), ("1", "7", "other")])
def test_lists_lead_back_to_the_videos(classes: tuple[str, ...], tmp_path: Path) -> None:
    """Also for names with commas, and for numbers, which a list would take for indices."""
    for name in classes:
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "x.mp4").touch()
    annotations = open_dataset(tmp_path / "data")
    write_list(annotations, tmp_path / "list.csv")
    back = open_dataset(tmp_path / "list.csv", "list")
    assert [(r.path, r.label) for r in back] == [(r.path, r.label) for r in annotations]
    assert [name.removeprefix("class ") for name in back.class_names] == list(classes)


def test_pieces_of_videos_keep_their_times(tmp_path: Path) -> None:
    (tmp_path / "v.mp4").touch()
    (tmp_path / "in.csv").write_text("path,label,start,end\nv.mp4,a,0,1.5\nv.mp4,a,2,3\nv.mp4,b,4,5\nv.mp4,b,6,7\n")
    train, val = _split_by_class(open_dataset(tmp_path / "in.csv"), 0.5)
    write_list(train, tmp_path / "out.csv")
    back = open_dataset(tmp_path / "out.csv", "list")
    assert [(r.start, r.end) for r in back] == [(r.start, r.end) for r in train]
    assert len(train) == len(val) == 2


def test_a_list_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.mp4").touch()
    (tmp_path / "in.csv").write_text("path,label\nv.mp4,a\nv.mp4,b\n")
    (tmp_path / "out.csv").write_text("the earlier one")

    def stop(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_list(open_dataset(tmp_path / "in.csv"), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "the earlier one"


def list_of(tmp_path: Path, pieces: dict[str, str]) -> Path:
    """A list of pieces of half a second: of each file as many as there are letters, each a class."""
    rows = [
        f"{name},{label},{place / 4},{place / 4 + 0.5}"
        for name, labels in pieces.items()
        for place, label in enumerate(labels)
    ]
    for name in pieces:
        (tmp_path / name).touch()
    (tmp_path / "in.csv").write_text("\n".join(["path,label,start,end", *rows]))
    return tmp_path / "in.csv"


@pytest.mark.parametrize(
    "pieces",
    [
        {"1.mp4": "aaaa", "2.mp4": "aaaa", "3.mp4": "bbb", "4.mp4": "bbbbbb", "5.mp4": "b"},
        {"1.mp4": "abab", "2.mp4": "aabb", "3.mp4": "ab"},
        {"1.mp4": "ab", "2.mp4": "bc", "3.mp4": "ca", "4.mp4": "ab", "5.mp4": "c"},
    ],
)
def test_pieces_of_a_file_stay_on_one_side(pieces: dict[str, str], tmp_path: Path) -> None:
    annotations = open_dataset(list_of(tmp_path, pieces))
    for seed in range(10):
        train, val = _split_by_class(annotations, 0.2, seed)
        assert not {record.path for record in train} & {record.path for record in val}
        assert all(train.counts().values())
        assert all(val.counts().values())
        assert len(train) + len(val) == len(annotations)
        assert note_shared_files(train, val) == ()


def test_pieces_of_a_classes_only_file_are_on_both_sides_and_that_is_told(tmp_path: Path) -> None:
    annotations = open_dataset(list_of(tmp_path, {"1.mp4": "aaaaa", "2.mp4": "bb", "3.mp4": "bbbbbbbb"}))
    train, val = _split_by_class(annotations, 0.2)
    assert {record.path.name for record in train} & {record.path.name for record in val} == {"1.mp4"}
    assert val.counts() == {"a": 1, "b": 2}
    (note,) = note_shared_files(train, val)
    assert note == "the same file is in training and validation (1.mp4): the metrics are too good"


def test_a_piece_is_looked_at_and_not_its_file(tmp_path: Path) -> None:
    write_videos(tmp_path / "moves", "easy", 8, frames=120, size=16, fps=10)
    rows = [f"{path},{path.parent.name},2,{end}" for path in (tmp_path / "moves").rglob("*.mp4") for end in (2.6, 3)]
    (tmp_path / "pieces.csv").write_text("\n".join(["path,label,start,end", *rows]))
    planned = plan(tmp_path / "pieces.csv", tmp_path)
    assert (planned.facts.frames, planned.facts.seconds) == (8, pytest.approx(0.8))
    assert build_config(planned.recipe, 8).input.sampling == "segments"
    whole = _inspect(open_dataset(tmp_path / "moves"))
    assert (whole.frames, whole.seconds) == (120, pytest.approx(12.0))


def test_one_class_is_nothing_to_learn(videos: Path, tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    shutil.copytree(videos, tmp_path / "parent" / "moves")
    with pytest.raises(
        RecipeError, match=r"one class only \('moves', which holds 8 folders\): did you mean .*/moves\?"
    ):
        plan(tmp_path / "parent", tmp_path)
    with pytest.raises(RecipeError, match=r"one class only \('a'\)\. Training needs two classes"):
        plan(list_of(tmp_path, {"1.mp4": "aa", "2.mp4": "aa"}), tmp_path)
    (tmp_path / "several.csv").write_text("path,labels\n1.mp4,a\n2.mp4,\n3.mp4,a\n4.mp4,\n")
    for name in ("3.mp4", "4.mp4"):
        (tmp_path / name).touch()
    assert open_splits(tmp_path / "several.csv", 0.5, 0)[0].class_names == ("a",)  # shown or not: two answers


def test_mirroring_is_told() -> None:
    def told(*names: str, **part: object) -> str:
        return describe_mirroring(replace(advise().augmentation, **part), names)  # type: ignore[arg-type]

    assert told("left", "right", "stop") == "left ↔ right, others as themselves"
    assert told("left", "right") == "left ↔ right"
    assert told("hidari", "migi") == "every class as itself (augmentation.flip=0 if left and right matter)"
    assert told("left", "right", flip_by_name=False) == told("hidari", "migi")
    assert told("left", "stop") == "never: no class is the mirror image of 'left'"
    assert told("left", "right", flip=0.0) == "never"
    many = [f"{side} {number}" for number in range(6) for side in ("left", "right")]
    assert told(*many).endswith("left 3 ↔ right 3 and 2 more")


def test_files_that_are_not_there_can_be_left_out(videos: Path, tmp_path: Path) -> None:
    rows = [f"{path},{path.parent.name}" for path in sorted(videos.rglob("*.mp4"))]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows, "gone.mp4,up"]))
    with pytest.raises(AnnotationError, match=r"list\.csv:42: no such video: .*gone\.mp4"):
        plan(tmp_path / "list.csv", tmp_path)
    planned = plan(tmp_path / "list.csv", tmp_path, missing="drop")
    assert len(planned.train) + len(planned.val) == 40
    assert "1 of 41 videos are not there" in planned.notes[0]


def plan(videos: Path, tmp_path: Path, *overrides: str, **options: object) -> FinetunePlan:
    return plan_finetune(videos, FinetuneOptions(output=str(tmp_path / "run"), **options), overrides, CPU)  # type: ignore[arg-type]


def test_a_plan_writes_lists_that_its_recipe_names(videos: Path, tmp_path: Path) -> None:
    planned = plan(videos, tmp_path, "seed=3")
    assert not (tmp_path / "run").exists()  # a plan touches nothing
    planned.write_lists()
    for where, annotations in ((planned.recipe.data.train, planned.train), (planned.recipe.data.val, planned.val)):
        assert [(r.path, r.label) for r in open_dataset(where, "list")] == [(r.path, r.label) for r in annotations]
    assert planned.recipe.seed == 3
    assert planned.recipe == plan(videos, tmp_path, "seed=3").recipe
    assert (planned.facts.frames, planned.facts.short_side) == (8, 32)


def test_a_folder_that_cannot_be_made_is_named(videos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    plan = plan_finetune(videos, FinetuneOptions(output=str(tmp_path / "file" / "run")))
    with pytest.raises(
        OutputError,
        match=r"file/run: this folder cannot be created \(.*file is a file, .*\); choose",
    ):
        plan.write_lists()


def test_lists_of_a_run_that_has_begun_stay(videos: Path, tmp_path: Path) -> None:
    plan(videos, tmp_path).write_lists()
    plan(videos, tmp_path, held_out=0.4).write_lists()  # not begun: may change
    (tmp_path / "run" / "recipe.yaml").touch()
    plan(videos, tmp_path, held_out=0.3).write_lists()  # a recipe alone trained nothing
    (tmp_path / "run" / "metrics.csv").touch()
    plan(videos, tmp_path, held_out=0.3).write_lists()
    with pytest.raises(RecipeError, match="have changed since this run began"):
        plan(videos, tmp_path, held_out=0.2).write_lists()


def test_lists_of_a_run_that_has_begun_follow_videos_that_moved(videos: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first" / "videos", tmp_path / "second" / "videos"
    shutil.copytree(videos, first)
    plan(first, tmp_path).write_lists()
    (tmp_path / "run" / "metrics.csv").touch()
    first.parent.rename(second.parent)
    plan(second, tmp_path).write_lists()
    assert str(second) in (tmp_path / "run" / "train.csv").read_text()
    next(second.rglob("*.mp4")).unlink()
    with pytest.raises(RecipeError, match="have changed since this run began"):
        plan(second, tmp_path).write_lists()


def test_lists_stay_while_another_process_trains(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan(videos, tmp_path).write_lists()
    written = (tmp_path / "run" / "val.csv").read_bytes()

    def refuse(stream: object, how: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr("fcntl.lockf", refuse)
    plan(videos, tmp_path).write_lists()  # the same ones
    with pytest.raises(OutputError, match="another process is training here"):
        plan(videos, tmp_path, held_out=0.4).write_lists()
    assert (tmp_path / "run" / "val.csv").read_bytes() == written


def test_folders_that_are_split_already(videos: Path, tmp_path: Path) -> None:
    shutil.copytree(videos, tmp_path / "data" / "train")
    shutil.copytree(videos, tmp_path / "data" / "val")
    planned = plan(tmp_path / "data", tmp_path)
    assert (len(planned.train), len(planned.val)) == (40, 40)
    assert {record.path.parents[1].name for record in planned.val} == {"val"}


def test_what_is_held_out_need_not_show_every_class(videos: Path, tmp_path: Path) -> None:
    shutil.copytree(videos, tmp_path / "data" / "train")
    shutil.copytree(videos / "up", tmp_path / "data" / "val" / "up")
    planned = plan(tmp_path / "data", tmp_path)
    planned.write_lists()
    train, val = open_sources(planned.recipe)
    assert val.class_names == train.class_names == tuple(sorted(CLASSES))
    assert set(val.labels) == {train.class_names.index("up")}  # type: ignore[union-attr]
    shutil.copytree(videos / "up", tmp_path / "data" / "val" / "sideways")
    with pytest.raises(RecipeError, match="class 'sideways' has validation videos but no training videos"):
        plan(tmp_path / "data", tmp_path)


def test_lists_in_a_folder_have_the_classes_of_training(videos: Path, tmp_path: Path) -> None:
    rows = {name: f"{next((videos / name).glob('*.mp4'))},{name}" for name in ("up", "down", "left")}
    (tmp_path / "train.csv").write_text("\n".join(["path,label", *rows.values()]))
    (tmp_path / "val.csv").write_text("\n".join(["path,label", rows["up"]]))
    planned = plan(tmp_path, tmp_path)
    assert [planned.val.label_name(record.label) for record in planned.val] == ["up"]
    assert planned.val.class_names == ("down", "left", "up")
    (tmp_path / "val.csv").write_text("\n".join(["path,label", rows["up"].replace(",up", ",sideways")]))
    with pytest.raises(AnnotationError, match=r"val\.csv:2: label 'sideways' is not among the 3 classes"):
        plan(tmp_path, tmp_path)


def test_training_by_recipe_wants_two_classes(videos: Path, tmp_path: Path) -> None:
    rows = [f"{path},up" for path in (videos / "up").glob("*.mp4")]
    (tmp_path / "one.csv").write_text("\n".join(["path,label", *rows]))
    data = {"train": str(tmp_path / "one.csv"), "val": str(tmp_path / "one.csv")}
    with pytest.raises(RecipeError, match=r"all videos of .*one\.csv are of one class \('up'\)"):
        open_sources(make_recipe({"name": "x", "data": data}))


def test_videos_without_labels_and_places_of_the_lists(videos: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="one label each"):
        plan(next(videos.iterdir()), tmp_path)
    with pytest.raises(RecipeError, match="choose it with --name or --output"):
        plan(videos, tmp_path, "output=there")
    with pytest.raises(RecipeError, match="no such file or folder"):
        plan(tmp_path / "none", tmp_path)


def test_starting_from_a_model_of_ours(tmp_path: Path) -> None:
    saved = create_model("divided-tiny", num_classes=3, frames=16, size=64)
    saved.save_pretrained(tmp_path / "saved")
    recipe = advise(FinetuneOptions(name="x", init_from=str(tmp_path / "saved"), train="head"))
    model, _ = build_model(recipe, build_config(recipe, 5, tuple("abcde")))
    assert (model.config.attention, model.config.depth, model.config.drop_path) == ("divided", 4, 0.0)
    assert torch.equal(model.blocks[0].attn.qkv.weight, saved.blocks[0].attn.qkv.weight)
    assert model.config.input.frames == 8  # fewer on a CPU: time was interpolated
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == {
        "head.classifier.weight",
        "head.classifier.bias",
    }


def test_a_small_start_is_trained_whole_and_larger_than_it_was() -> None:
    recipe = advise(FinetuneOptions(name="x", init_from="motion-tiny"))
    assert (recipe.model.train, recipe.epochs, recipe.optimiser.lr) == ("all", 40, 1e-3)
    assert build_config(recipe, 5).input.height == 64
    options = FinetuneOptions(name="x", init_from="somewhere")
    large = finetune_recipe(options, SHORT, CPU, num_train=500, initial_config=lambda _: VARIANTS["motionformer-small"])
    assert (large.model.train, large.epochs, large.optimiser.lr) == ("last:4", 8, 3e-4)
    assert (large.optimiser.new_rate, recipe.optimiser.new_rate) == (4.0, 1.0)
    assert build_config(large, 5).input.height == 7 * 16


def test_starting_from_image_weights(tmp_path: Path) -> None:
    """The recipe alone says what model they become, pixels scaled as theirs were."""
    file = tmp_path / "image.safetensors"
    save_file(timm_weights(layer_scale=True), file)
    recipe = advise(FinetuneOptions(name="x", init_from=str(file), train="last:1"))
    config = build_config(recipe, 5)
    assert (config.dim, config.depth, config.patch, config.input.mean[0]) == (64, 2, 8, 0.485)
    assert (config.project_values, config.input.height) == (False, 64)
    assert build_model(recipe, build_config(recipe, 5))[0].config == config
    assert _initial_model_config(str(file)).dim == 64
    assert config.readout == "motion"  # an image model knows no order of frames
    asked = advise(FinetuneOptions(name="x", init_from=str(file), readout="class"))
    assert build_config(asked, 5).readout == "class"


def test_a_file_name_that_is_no_utf8_is_split_and_told_by_its_list(videos: Path, tmp_path: Path) -> None:
    """A list is UTF-8 or refused, so it cannot hold such a name."""
    shutil.copytree(videos, tmp_path / "moves")
    odd = next((tmp_path / "moves" / "up").iterdir()).rename(tmp_path / "moves" / "up" / "caf\udce9.mp4")
    planned = plan_finetune(tmp_path / "moves", FinetuneOptions(name="x", output=str(tmp_path / "run")), hardware=CPU)
    assert odd in {record.path for record in (*planned.train, *planned.val)}
    with pytest.raises(AnnotationError, match=r"caf.*\.mp4: the name is not UTF-8, .* rename the file"):
        planned.write_lists()


@pytest.mark.parametrize("num_train", [2, 10, 20, 32, 35, 40, 100, 255, 256, 1000])
@pytest.mark.parametrize(
    "options", [FinetuneOptions(name="x"), FinetuneOptions(name="x", init_from="w", train="last:4")]
)
def test_few_videos_get_as_many_steps_as_they_need(num_train: int, options: FinetuneOptions) -> None:
    def start(name: str) -> ModelConfig:
        return VARIANTS["motionformer-base"]

    recipe = finetune_recipe(options, SHORT, CPU, num_train=num_train, initial_config=start)
    steps = num_train // recipe.global_batch * recipe.epochs
    assert steps >= 60
    assert recipe.epochs >= (8 if options.init_from else 40)
    assert num_train % recipe.global_batch <= 3 or num_train >= 100  # hardly a video is left over
    if num_train >= 256:
        assert (recipe.global_batch, recipe.epochs) == (32, 8 if options.init_from else 40)
    if num_train == 32 and options.init_from:
        assert (recipe.global_batch, recipe.epochs) == (16, 30)
    assert recipe.schedule.warmup <= 0.1 * recipe.epochs


def test_epochs_and_batch_that_were_asked_for_are_kept() -> None:
    assert advise(FinetuneOptions(name="x", epochs=3), num_train=32).epochs == 3
    asked = advise(FinetuneOptions(name="x", batch_size=8), num_train=32)
    assert (asked.global_batch, asked.epochs) == (8, 40)
    asked = advise(FinetuneOptions(name="x", batch_size=32), num_train=32)
    assert (asked.global_batch, asked.epochs) == (32, 60)


def test_one_held_out_video_is_enough(tmp_path: Path) -> None:
    """Two videos a class: one to learn from, one to check with; steps are found for them too."""
    write_videos(tmp_path / "moves", "easy", 16, frames=8, size=32)
    planned = plan_finetune(tmp_path / "moves", FinetuneOptions(output=str(tmp_path / "run")), hardware=CPU)
    assert (len(planned.train), len(planned.val)) == (8, 8)
    assert planned.steps == 60
    assert planned.notes == ()


def test_copies_of_a_video_stay_on_one_side(tmp_path: Path) -> None:
    """Under another name, in the same folder: held out, they would be known by heart."""
    write_videos(tmp_path / "moves", "easy", 16, frames=8, size=16)
    for path in sorted((tmp_path / "moves").rglob("*.mp4")):
        shutil.copy(path, path.with_name(f"copy-{path.name}"))
    annotations = open_dataset(tmp_path / "moves")
    for seed in range(3):
        train, val = _split_by_class(annotations, 0.25, seed)
        assert not {path.path.name[-9:] for path in train} & {path.path.name[-9:] for path in val}
        assert _held_out_overlap((VideoSource(train), VideoSource(val)), None)["run"] == 0


def test_held_out_videos_that_were_trained_on_are_counted(tmp_path: Path) -> None:
    write_videos(tmp_path / "moves", "easy", 16, frames=8, size=16)
    train, val = _split_by_class(open_dataset(tmp_path / "moves"), 0.25, 0)
    start = TrainingData(VideoSource(val).video_set()[0])
    found = _held_out_overlap((VideoSource(train), VideoSource(val)), start)
    assert found == {"videos": len(val), "run": 0, "start": len(val)}
    assert _held_out_overlap((VideoSource(val), VideoSource(val)), None)["run"] == len(val)


def test_from_python_with_the_names_of_other_functions(videos: Path, tmp_path: Path) -> None:
    result = finetune(
        videos,
        tmp_path / "run",
        epochs=1,
        size=16,
        frames=2,
        batch_size=16,
        num_workers=0,
        device="cpu",
        precision="bf16",
        overrides=["model.changes.depth=1", "model.changes.dim=16", "model.changes.num_heads=2"],
        quiet=True,
    )
    recipe = load_recipe(tmp_path / "run" / "recipe.yaml")
    assert (recipe.global_batch, recipe.data.workers, recipe.epochs) == (16, 0, 1)
    assert (recipe.engine.accelerator, recipe.engine.precision) == ("cpu", "bf16-mixed")
    assert load_model(result.model).config.input.frames == 2
    assert repr(result).startswith(f"TrainingResult(folder={result.folder!r}, model=")
    assert len(repr(result)) < 500


def test_options_of_a_recipe_by_their_shared_names() -> None:
    recipe = make_recipe({"name": "x", "output": "a"})
    assert recipe.with_options() == recipe
    changed = recipe.with_options(output=Path("b"), batch_size=8, num_workers=3, device="cuda:1", precision="16")
    assert (changed.output, changed.global_batch, changed.data.workers) == ("b", 8, 3)
    assert (changed.engine.accelerator, changed.engine.devices, changed.engine.precision) == ("gpu", "1,", "16-mixed")
    with pytest.raises(RecipeError, match=r"global_batch \(0\) must be at least 1"):
        recipe.with_options(batch_size=0)
