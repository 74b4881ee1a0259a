"""Fine-tuning: the split is fair and repeatable, the recipe fits videos and machine, the lists lead back to them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from motionformer.data import open_dataset
from motionformer.data.motion import write_videos
from motionformer.errors import AnnotationError, RecipeError, TrainingError
from motionformer.models.config import ModelConfig
from motionformer.models.variants import VARIANTS, create_model
from motionformer.training.advice import (
    BASIS,
    Hardware,
    VideoFacts,
    Wishes,
    clips_that_fit,
    config_changes,
    finetune_recipe,
    read_start,
)
from motionformer.training.finetune import FineTuning, plan_finetune, write_lists
from motionformer.training.model import build_config, build_model
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.training.splits import split_by_class, write_list
from tests.weights.test_image import timm_weights

CPU, GPU = Hardware(False, 16 << 30, 2), Hardware(True, 32 << 30, 16)
SHORT, LONG = VideoFacts(30, 2.5, 120), VideoFacts(900, 30.0, 360)


def advise(wishes: Wishes | None = None, facts: VideoFacts = SHORT, hardware: Hardware = CPU, **options: int) -> Recipe:
    return finetune_recipe(wishes or Wishes(name="x"), facts, hardware, num_train=options.get("num_train", 500))


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
    assert config(advise(Wishes(name="x", frames=16, size=96, attention="joint"))).grid == (8, 12, 12)
    assert advise(num_train=20).global_batch == 20
    assert (advise().engine.precision, advise(hardware=GPU).engine.precision) == ("32-true", "bf16-mixed")


def test_clips_at_once_fit_the_memory() -> None:
    config = build_config(advise(), 5)
    one = clips_that_fit(config, CPU)
    assert clips_that_fit(config, replace(CPU, memory=2 * CPU.memory)) >= 2 * one
    tight = advise(hardware=replace(CPU, memory=150 << 20))
    assert 1 <= tight.engine.max_clips < tight.global_batch
    assert advise().engine.max_clips == 0


def test_without_weights_the_head_sees_motion() -> None:
    config = build_config(advise(), 5)
    assert (config.readout, config.dim, config.input.height) == ("motion", 96, 48)
    assert build_config(advise(Wishes(name="x", readout="class")), 5).readout == "class"
    assert build_config(advise(Wishes(name="x", start="motion-tiny")), 5).readout == "class"  # its own


def test_what_the_user_says_wins() -> None:
    recipe = advise(Wishes(name="x", train="last:2", epochs=3, lr=0.5, batch=8, seed=4, output="here"))
    assert (recipe.model.train, recipe.epochs, recipe.optimiser.lr, recipe.global_batch) == ("last:2", 3, 0.5, 8)
    assert (recipe.seed, recipe.folder, recipe.data.train) == (4, Path("here"), "here/train.csv")
    assert recipe.optimiser.lr_batch == 8  # the rate is for the batch used
    assert recipe.augmentation.flip_by_name


def test_a_rate_of_zero_is_not_taken_for_none() -> None:
    with pytest.raises(RecipeError, match=r"optimiser\.lr is positive"):
        advise(Wishes(name="x", lr=0.0))


def test_the_split_is_stratified_repeatable_and_moves_along(videos: Path, tmp_path: Path) -> None:
    train, val = split_by_class(open_dataset(videos), 0.2, 0, videos)
    assert set(val.counts().values()) == {1}
    assert set(train.counts().values()) == {4}
    assert not {record.path for record in train} & {record.path for record in val}
    moved = tmp_path / "elsewhere"
    shutil.copytree(videos, moved)
    again = split_by_class(open_dataset(moved), 0.2, 0, moved)[1]
    assert [r.path.relative_to(moved) for r in again] == [r.path.relative_to(videos) for r in val]
    other = split_by_class(open_dataset(videos), 0.2, 1, videos)[1]
    assert {record.path for record in other} != {record.path for record in val}


def test_a_class_of_one_video_is_refused(tmp_path: Path) -> None:
    for name in ("a/1.mp4", "a/2.mp4", "b/1.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(AnnotationError, match="class 'b' has a single video"):
        split_by_class(open_dataset(tmp_path))


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
    train, val = split_by_class(open_dataset(tmp_path / "in.csv"), 0.5)
    write_list(train, tmp_path / "out.csv")
    back = open_dataset(tmp_path / "out.csv", "list")
    assert [(r.start, r.end) for r in back] == [(r.start, r.end) for r in train]
    assert len(train) == len(val) == 2


def plan(videos: Path, tmp_path: Path, *overrides: str, **wishes: object) -> FineTuning:
    return plan_finetune(videos, Wishes(output=str(tmp_path / "run"), **wishes), overrides, CPU)  # type: ignore[arg-type]


def test_a_plan_writes_lists_that_its_recipe_names(videos: Path, tmp_path: Path) -> None:
    planned = plan(videos, tmp_path, "seed=3")
    assert not (tmp_path / "run").exists()  # a plan touches nothing
    write_lists(planned)
    for where, annotations in ((planned.recipe.data.train, planned.train), (planned.recipe.data.val, planned.val)):
        assert [(r.path, r.label) for r in open_dataset(where, "list")] == [(r.path, r.label) for r in annotations]
    assert planned.recipe.seed == 3
    assert planned.recipe == plan(videos, tmp_path, "seed=3").recipe
    assert (planned.facts.frames, planned.facts.short_side) == (8, 32)


def test_lists_of_a_run_that_has_begun_stay(videos: Path, tmp_path: Path) -> None:
    write_lists(plan(videos, tmp_path))
    write_lists(plan(videos, tmp_path, held_out=0.4))  # not begun: may change
    (tmp_path / "run" / "recipe.yaml").touch()
    write_lists(plan(videos, tmp_path, held_out=0.3))  # a recipe alone trained nothing
    (tmp_path / "run" / "metrics.csv").touch()
    write_lists(plan(videos, tmp_path, held_out=0.3))
    with pytest.raises(RecipeError, match="others than when this run began"):
        write_lists(plan(videos, tmp_path, held_out=0.2))


def test_lists_stay_while_another_process_trains(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lists(plan(videos, tmp_path))
    written = (tmp_path / "run" / "val.csv").read_bytes()

    def refuse(stream: object, how: int) -> None:
        raise BlockingIOError

    monkeypatch.setattr("fcntl.lockf", refuse)
    write_lists(plan(videos, tmp_path))  # the same ones
    with pytest.raises(TrainingError, match="another process is training here"):
        write_lists(plan(videos, tmp_path, held_out=0.4))
    assert (tmp_path / "run" / "val.csv").read_bytes() == written


def test_folders_that_are_split_already(videos: Path, tmp_path: Path) -> None:
    shutil.copytree(videos, tmp_path / "data" / "train")
    shutil.copytree(videos, tmp_path / "data" / "val")
    planned = plan(tmp_path / "data", tmp_path)
    assert (len(planned.train), len(planned.val)) == (40, 40)
    assert {record.path.parents[1].name for record in planned.val} == {"val"}


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
    recipe = advise(Wishes(name="x", start=str(tmp_path / "saved"), train="head"))
    model = build_model(recipe, tuple("abcde"), 5)
    assert (model.config.attention, model.config.depth, model.config.drop_path) == ("divided", 4, 0.0)
    assert torch.equal(model.blocks[0].attn.qkv.weight, saved.blocks[0].attn.qkv.weight)
    assert model.config.input.frames == 8  # fewer on a CPU: time was interpolated
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == {
        "head.classifier.weight",
        "head.classifier.bias",
    }


def test_a_small_start_is_trained_whole_and_larger_than_it_was() -> None:
    recipe = advise(Wishes(name="x", start="motion-tiny"))
    assert (recipe.model.train, recipe.epochs, recipe.optimiser.lr) == ("all", 40, 1e-3)
    assert build_config(recipe, 5).input.height == 64
    wishes = Wishes(name="x", start="somewhere")
    large = finetune_recipe(wishes, SHORT, CPU, num_train=500, starting_config=lambda _: VARIANTS["motionformer-small"])
    assert (large.model.train, large.epochs, large.optimiser.lr) == ("last:4", 8, 3e-4)
    assert (large.optimiser.new_rate, recipe.optimiser.new_rate) == (4.0, 1.0)
    assert build_config(large, 5).input.height == 7 * 16


def test_starting_from_image_weights(tmp_path: Path) -> None:
    """The recipe alone says what model they become, pixels scaled as theirs were."""
    file = tmp_path / "image.safetensors"
    save_file(timm_weights(layer_scale=True), file)
    recipe = advise(Wishes(name="x", start=str(file), train="last:1"))
    config = build_config(recipe, 5)
    assert (config.dim, config.depth, config.patch, config.input.mean[0]) == (64, 2, 8, 0.485)
    assert (config.project_values, config.input.height) == (False, 64)
    assert build_model(recipe, tuple("abcde"), 5).config == replace(config, labels=tuple("abcde"))
    assert read_start(str(file)).dim == 64
    assert config.readout == "motion"  # an image model knows no order of frames
    asked = advise(Wishes(name="x", start=str(file), readout="class"))
    assert build_config(asked, 5).readout == "class"


def test_a_file_name_that_is_no_utf8_is_split_and_told_by_its_list(videos: Path, tmp_path: Path) -> None:
    """A list is UTF-8 or refused, so it cannot hold such a name."""
    shutil.copytree(videos, tmp_path / "moves")
    odd = next((tmp_path / "moves" / "up").iterdir()).rename(tmp_path / "moves" / "up" / "caf\udce9.mp4")
    planned = plan_finetune(tmp_path / "moves", Wishes(name="x", output=str(tmp_path / "run")), hardware=CPU)
    assert odd in {record.path for record in (*planned.train, *planned.val)}
    with pytest.raises(AnnotationError, match=r"caf.*\.mp4: the name is not UTF-8, .* rename it"):
        write_lists(planned)
