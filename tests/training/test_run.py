"""A run from recipe to folder, and everything that can end it early."""

import csv
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from motionformer import load_model
from motionformer.data.fingerprints import _fingerprint_video
from motionformer.data.motion import CLASSES, write_videos
from motionformer.errors import (
    AnnotationError,
    MotionformerError,
    NonFiniteLossError,
    OutputError,
    RecipeError,
    TrainingError,
)
from motionformer.inference.metrics import wilson
from motionformer.logging import show_messages
from motionformer.models.motionformer import Motionformer
from motionformer.training import make_recipe, train
from motionformer.training.module import TrainingModule
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.run import TrainingResult, prepare
from motionformer.training.run_folder import Checkpoint, RunFolder, _Hashed
from motionformer.video.transforms.randaugment import STRONGEST
from tests.training.children import SMALL


def small(folder: Path, *overrides: str) -> Recipe:
    return make_recipe(SMALL, [f"output={folder}", "epochs=1", *overrides])


def test_a_run_leaves_a_model_its_numbers_and_a_card(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with show_messages():
        done = train(small(tmp_path))
    said = capfd.readouterr()
    assert said.out == ""
    first, last = said.err.splitlines()
    assert first == f"{tmp_path}: 4 steps."
    assert last.startswith(
        f"epoch 1 of 1, step 4 of 4: loss {done.last['loss']:.4g}, top1 {done.last['top1']:.4g} (95 % CI "
    )
    assert f"top5 {done.last['top5']:.4g} (95 % CI " in last
    model = load_model(done.model)
    assert model.config.labels == CLASSES
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["plan"]["accumulation"] == 2
    assert card["results"]["last"] == done.last == done.best
    assert card["model"]["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert len(card["data"]["train"]["fingerprint"]) == 64
    assert card["software"]["versions"]["torch"] == torch.__version__
    assert "## " not in (tmp_path / "card.md").read_text()
    assert "| model | trajectory attention, 16 wide, 2 layers," in (tmp_path / "card.md").read_text()
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    assert float(rows[-1]["val/top1"]) == done.last["top1"]
    assert list((tmp_path / "tensorboard").glob("events.*"))
    with show_messages():
        again = train(small(tmp_path))  # nothing is trained twice
    assert "holds a finished run of this recipe" in capfd.readouterr().err
    assert again.last == done.last


def test_the_last_epoch_is_always_validated(tmp_path: Path) -> None:
    done = train(small(tmp_path, "engine.validate_epochs=2"), quiet=True)
    assert done.last["step"] == 4
    assert len(done.card["results"]["history"]) == 1


def test_the_saved_model_is_the_averaged_one(tmp_path: Path) -> None:
    done = train(small(tmp_path), quiet=True)
    checkpoint = RunFolder(tmp_path).checkpoints()[0].read()
    saved = load_model(done.model).state_dict()
    averaged, trained = checkpoint["state_dict"], checkpoint["current_model_state"]
    assert all(torch.equal(saved[name], averaged[f"model.{name}"]) for name in saved)
    assert any(not torch.equal(averaged[name], trained[name]) for name in averaged)


@pytest.mark.parametrize("at_once", [1, 2])
def test_accumulation_is_the_whole_batch(tmp_path: Path, at_once: int) -> None:
    """One clip at once is special: gradients must not share memory. AdamW's first moment is a mean of all gradients."""
    off = (
        "model.changes.drop_path=0.0",
        "model.changes.head_dropout=0.0",
        "augmentation.mixup=0",
        "augmentation.cutmix=0",
    )
    moments = []
    for limit in (0, at_once):
        folder = tmp_path / str(limit)
        train(small(folder, f"engine.max_clips={limit}", "ema=0", *off), quiet=True)
        saved = RunFolder(folder).checkpoints()[0].read()
        moments.append([state["exp_avg"] for state in saved["optimizer_states"][0]["state"].values()])
    for whole, accumulated in zip(*moments, strict=True):
        torch.testing.assert_close(accumulated, whole, rtol=1e-3, atol=1e-6)


def test_another_recipe_in_the_folder_is_refused(tmp_path: Path) -> None:
    train(small(tmp_path), quiet=True)
    with pytest.raises(TrainingError, match=r"another recipe: optimiser\.lr \(0\.05 there, 0\.1 now\); seed \(0 there"):
        train(small(tmp_path, "seed=1", "optimiser.lr=0.1", "data.workers=3"), quiet=True)


@pytest.mark.parametrize(
    "mistake",
    [
        "model.variant=foo",
        "model.init_from=missing",
        "engine.precision=foo",
        "data.train=missing",
        "model.train=last:99",
    ],
)
def test_a_run_that_could_not_begin_leaves_its_folder_free(tmp_path: Path, mistake: str) -> None:
    with pytest.raises(MotionformerError):
        train(small(tmp_path, mistake), quiet=True)
    assert train(small(tmp_path), quiet=True).last["step"] == 4


def test_a_run_that_failed_before_its_first_number_leaves_its_folder_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TrainingModule, "training_step", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(small(tmp_path), quiet=True)
    RunFolder(tmp_path).check_same_recipe(small(tmp_path, "seed=1"))


def test_a_run_from_before_an_option_existed_goes_on(tmp_path: Path) -> None:
    """The folder's recipe lacks the new key; it ran with what is now the default."""
    recipe = small(tmp_path)
    written = tmp_path / "recipe.yaml"
    written.write_text(recipe.to_yaml(), encoding="utf-8")
    lines = [line for line in written.read_text().splitlines(keepends=True) if "new_rate" not in line]
    written.write_text("".join(lines))
    (tmp_path / "metrics.csv").touch()
    RunFolder(tmp_path).check_same_recipe(recipe)
    with pytest.raises(TrainingError, match=r"optimiser\.new_rate \(1\.0 there, 2\.0 now\)"):
        RunFolder(tmp_path).check_same_recipe(small(tmp_path, "optimiser.new_rate=2"))


def test_videos_from_a_folder_bf16_and_a_broken_one(tmp_path: Path) -> None:
    """Real files, augmented, one of them broken: it is skipped, counted and listed."""
    videos = tmp_path / "videos"
    write_videos(videos, "easy", 32, frames=6, size=32)
    broken = sorted(videos.rglob("*.mp4"))[3]
    broken.write_bytes(b"not a video")
    changes = ["data.train_split=", "data.val_split=", "data.max_failed_share=0.1", "augmentation.flip=0.5"]
    changes += ["augmentation.colour=0.4", "augmentation.rand_augment=2", "engine.precision=bf16-mixed", "ema=0"]
    done = train(small(tmp_path / "run", f"data.train={videos}", f"data.val={videos}", *changes), quiet=True)
    assert {entry["path"] for part in done.card["failed"].values() for entry in part} == {str(broken)}
    assert done.card["failed"]["val"][0]["reason"]
    assert done.last["top1"] <= 31 / 32  # the broken one is wrong


def test_too_many_broken_videos_end_the_run(tmp_path: Path) -> None:
    """Also of those held out; with a larger share accepted the same run goes on."""
    videos, held_out = tmp_path / "videos", tmp_path / "held-out"
    write_videos(videos, "easy", 16, frames=6, size=32)
    shutil.copytree(videos, held_out)
    broken = sorted(held_out.rglob("*.mp4"))[3]
    broken.write_bytes(b"not a video")

    def run(train_on: Path, val_on: Path, folder: str, *changes: str) -> TrainingResult:
        splits = ("data.train_split=", "data.val_split=", f"data.train={train_on}", f"data.val={val_on}")
        return train(small(tmp_path / folder, *splits, *changes), quiet=True)

    with pytest.raises(TrainingError, match=rf"validation: 1 of 16 .*{broken.name}.* data\.max_failed_share"):
        run(videos, held_out, "run")
    with pytest.raises(TrainingError, match=rf"training: 1 of 16 .*{broken.name}"):
        run(held_out, videos, "other")
    done = run(videos, held_out, "run", "data.max_failed_share=0.1")
    assert [entry["path"] for entry in done.card["failed"]["val"]] == [str(broken)]


def test_a_loss_that_is_not_a_number_names_the_videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = TrainingModule._loss

    def poisoned(self: TrainingModule, batch: dict[str, Any], step: int, part: int) -> torch.Tensor:
        return loss(self, batch, step, part) * (float("nan") if step == 2 else 1.0)

    monkeypatch.setattr(TrainingModule, "_loss", poisoned)
    with pytest.raises(NonFiniteLossError, match="the loss is nan in step 3") as caught:
        train(small(tmp_path), quiet=True)
    file = tmp_path / "nonfinite-step-3-rank-0.json"
    assert str(file) in str(caught.value)
    listed = json.loads(file.read_text())
    assert len(listed["clips"]) == 4
    assert all(clip["path"].startswith("train-") for clip in listed["clips"])


def test_a_model_that_diverged_in_its_last_step_is_not_saved(tmp_path: Path) -> None:
    """No training loss comes after the only step; validation sees what became of the weights."""
    one_step = ("optimiser.lr=1e30", "global_batch=36", "engine.max_clips=0", "schedule.warmup=0", "ema=0")
    with pytest.raises(
        NonFiniteLossError, match=r"the validation loss is nan after step 1.*no model was saved"
    ) as caught:
        train(small(tmp_path, *one_step), quiet=True)
    file = tmp_path / "nonfinite-validation-after-step-1-rank-0.json"
    assert str(file) in str(caught.value)
    assert json.loads(file.read_text())["clips"][0]["path"].startswith("val-")
    assert not RunFolder(tmp_path).checkpoints()
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "card.json").exists()


def test_one_validation_clip_that_gives_no_number_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean that leaves it out would be a number."""
    forward = Motionformer.forward

    def poisoned(self: Motionformer, clip: torch.Tensor) -> Any:
        logits = forward(self, clip)
        return logits if self.training else torch.where(torch.arange(len(clip))[:, None] == 1, float("nan"), logits)

    monkeypatch.setattr(Motionformer, "forward", poisoned)
    with pytest.raises(NonFiniteLossError, match="the validation loss is nan after step 4"):
        train(small(tmp_path), quiet=True)


def test_a_full_disk_is_a_message_and_the_run_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = _Hashed.write

    def full(self: _Hashed, data: Any) -> int:
        if "step-00000004" in self.stream.name and self.stream.tell() > 2000:
            self.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise self.error
        return write(self, data)

    with monkeypatch.context() as patched:
        patched.setattr(_Hashed, "write", full)
        with pytest.raises(TrainingError, match=r"step-00000004\.ckpt: the disk is full .*run the same command"):
            train(small(tmp_path), quiet=True)
    (left,) = RunFolder(tmp_path).checkpoints()
    assert left.is_intact()
    assert not list((tmp_path / "checkpoints").glob(".*"))
    assert train(small(tmp_path), quiet=True).last["step"] == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_really_full_device(tmp_path: Path) -> None:
    file = tmp_path / "step-00000001.ckpt"
    (tmp_path / f".{file.name}.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(TrainingError, match="the disk is full"):
        Checkpoint(file).write({"weights": torch.zeros(100_000)})
    assert not file.exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.train=motion:nowhere", "there is no level 'nowhere'"),
        ("data.train=motion:easy:64", "data.train_clips and data.val_clips set the number of clips"),
        ("data.train=motion:easy/3", "is one clip, to be traced"),
        ("data.train_split=all", "no split 'all'; there are train, val, test"),
        ("augmentation.flip=0.5", r"remove augmentation\.flip"),
        ("engine.devices=many", "write auto, a number, or a list"),
        ("engine.precision=7-bit", "the engine cannot be set up"),
        ("engine.wandb=project", "needs the package wandb"),
        ("model.changes.input.width=24", "square clips"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises((AnnotationError, RecipeError, TrainingError), match=message):
        train(small(tmp_path, override), quiet=True)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "augmentation.crop_area=[0.0,2.0]",
            r"augmentation\.crop_area .* or two numbers in \(0, 1\] in rising order",
        ),
        ("augmentation.crop_area=[0.5,0.1]", r"augmentation\.crop_area \(.*\) must be"),
        ("augmentation.crop_area=[0.5]", r"augmentation\.crop_area \(.*\) must be"),
        (
            "augmentation.jitter=[100,20]",
            r"augmentation\.jitter .* or two positive numbers in rising order",
        ),
        ("augmentation.jitter=[0,20]", r"augmentation\.jitter \(.*\) must be"),
        ("augmentation.jitter=[20]", r"augmentation\.jitter \(.*\) must be"),
        ("augmentation.colour=-1", r"augmentation\.colour \(-1.0\) must be in \[0, 1\]"),
        ("augmentation.colour=2", r"augmentation\.colour \(2.0\) must be in"),
        ("augmentation.flip=2", r"augmentation\.flip \(2.0\) must be in \[0, 1\]"),
        ("augmentation.flip=-0.5", r"augmentation\.flip \(-0.5\) must be in"),
        ("augmentation.erasing=1.5", r"augmentation\.erasing \(1.5\) must be in"),
        ("augmentation.rand_augment=-1", r"augmentation\.rand_augment \(-1\) must be at least 0"),
        (
            "augmentation.rand_augment_magnitude=31",
            r"augmentation\.rand_augment_magnitude \(31.0\) must be in \[0,",
        ),
        ("schedule.divisor=0", r"schedule\.divisor \(0.0\) must be positive"),
        ("schedule.final=-0.1", r"schedule\.final \(-0.1\) must be in"),
        ("optimiser.betas=[2,3]", r"optimiser\.betas \(.*\) must be two numbers in \[0, 1\)"),
        ("optimiser.betas=[0.9,1.0]", r"optimiser\.betas \(.*\) must be"),
        ("optimiser.weight_decay=-1", r"optimiser\.weight_decay \(-1.0\) must be at least 0"),
        ("optimiser.clip_norm=-1", r"optimiser\.clip_norm \(.*\) must be at least 0"),
        ("optimiser.clip_norm=nan", r"optimiser\.clip_norm \(.*\) must be at least 0"),
        ("data.val_clips=0", r"data\.val_clips \(0\) must be at least 1"),
    ],
)
def test_what_no_run_can_mean_names_its_key(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=f"recipe 'small': {message}"):
        make_recipe(SMALL, [override])


def test_the_ends_of_a_range_are_in_it() -> None:
    ends = [
        "augmentation.crop_area=[1,1]",
        "augmentation.jitter=[20,20]",
        "augmentation.colour=1",
        "augmentation.flip=1",
    ]
    ends += [f"augmentation.rand_augment_magnitude={STRONGEST}", "augmentation.erasing=1", "optimiser.betas=[0,0]"]
    assert make_recipe(SMALL, [*ends, "schedule.final=1", "optimiser.weight_decay=0"]).augmentation.flip == 1


def test_pictures_too_small_for_the_crop_are_refused(tmp_path: Path) -> None:
    videos = tmp_path / "videos"
    write_videos(videos, "easy", 16, frames=4, size=32)
    data = ["data.train_split=", "data.val_split=", f"data.train={videos}", f"data.val={videos}"]
    message = r"augmentation\.jitter=\[10, 20\] makes frames smaller than the model's clips \(16 × 16\): begin at 16"
    with pytest.raises(RecipeError, match=message):
        train(small(tmp_path / "run", *data, "augmentation.jitter=[10,20]"), quiet=True)
    assert train(small(tmp_path / "run", *data, "augmentation.jitter=[16,20]"), quiet=True).last["step"] == 2


@pytest.mark.parametrize("text", ["[1, 2]", "- name: x", "3"])
def test_yaml_that_is_no_recipe_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.yaml").write_text(text)
    with pytest.raises(RecipeError, match=r"list\.yaml: is not a recipe, which has lines `key: value`"):
        load_recipe(tmp_path / "list.yaml")


def test_two_runs_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    from tests.training.children import run_child

    (tmp_path / ".lock").touch()
    pid = os.fork()
    if pid == 0:  # a process that holds the folder until it is told to stop
        import fcntl
        import time

        with (tmp_path / ".lock").open("w") as stream:
            fcntl.lockf(stream, fcntl.LOCK_EX)
            (tmp_path / "held").touch()
            time.sleep(60)
        os._exit(0)
    try:
        while not (tmp_path / "held").exists():
            pass
        with pytest.raises(OutputError, match="another process is training here"):
            train(small(tmp_path), quiet=True)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert run_child(tmp_path, None, ("epochs=1",)) == 0


def test_the_plan_is_made_without_writing(tmp_path: Path) -> None:
    prepared = prepare(small(tmp_path / "run"))
    assert prepared.plan.total_steps == 4
    assert not (tmp_path / "run").exists()


def scripted(monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
    """Validation finds these top-1, whatever the model says."""
    measured = TrainingModule.on_validation_epoch_end
    left = list(scores)

    def end(self: TrainingModule) -> None:
        measured(self)
        self.history[-1]["top1"] = left.pop(0)

    monkeypatch.setattr(TrainingModule, "on_validation_epoch_end", end)


def weights_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    return {name.removeprefix("model."): weight for name, weight in state.items()}


def test_the_best_epoch_is_kept_by_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, 0.25, 0.75, 0.5, 0.25)
    options = ("epochs=4", "keep_epoch=best", "engine.keep=1")
    done = train(small(tmp_path, *options), quiet=True)
    assert (done.kept["epoch"], done.kept["top1"]) == (2, 0.75)
    assert done.last["epoch"] == 4
    steps = sorted(checkpoint.step for checkpoint in RunFolder(tmp_path).checkpoints())
    assert steps == [8, 16]  # the best, and the last to go on from
    kept, saved = weights_of(RunFolder(tmp_path).checkpoints()[1].file), load_model(done.model).state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in saved.items())
    assert "of epoch 2 of 4, the best, chosen on these validation videos: its metrics are optimistic" in (
        tmp_path / "card.md"
    ).read_text(encoding="utf-8")
    learnt = load_model(done.model).training_data
    assert learnt is not None
    assert len(learnt.selection) == 1
    assert train(small(tmp_path, *options), quiet=True).kept == done.kept


def test_the_last_epoch_is_kept_unless_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, 0.75, 6 / 11)
    done = train(small(tmp_path, "epochs=2"), quiet=True)
    assert done.kept == done.last
    assert done.best["epoch"] == 1
    kept, saved = weights_of(RunFolder(tmp_path).checkpoints()[0].file), load_model(done.model).state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in saved.items())
    assert "of the last epoch (2), not the best" in (tmp_path / "card.md").read_text(encoding="utf-8")
    low, high = wilson(6, 11)
    assert done.card["results"]["confidence"]["top1"] == {"low": low, "high": high, "correct": 6, "videos": 11}
    with pytest.raises(RecipeError, match=r"keep_epoch \(first\) must be last or best"):
        small(tmp_path, "keep_epoch=first")


def test_a_damaged_best_epoch_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scripted(monkeypatch, 0.75, 0.5)
    monkeypatch.setattr(Checkpoint, "is_intact", lambda self: False)
    done = train(small(tmp_path, "epochs=2", "keep_epoch=best"), quiet=True)
    assert done.kept["epoch"] == 2
    assert "of the best epoch, is damaged or missing: the last epoch is kept instead" in caplog.text
    assert "of the last epoch (2), not the best" in (tmp_path / "card.md").read_text(encoding="utf-8")


def test_a_model_says_what_it_and_its_start_have_learnt_from(tmp_path: Path) -> None:
    first = load_model(train(small(tmp_path / "a"), quiet=True).model).training_data
    assert first is not None
    assert first.train.overlap("motion:easy/train/0", (0.0, 1.0)) == "video"
    assert first.train.overlap("motion:easy/train/0", (1e6, 1e6 + 1)) == "file"
    videos = tmp_path / "videos"
    write_videos(videos, "easy", 16, frames=8, size=32)
    lists = (f"data.train={videos}", f"data.val={videos}", "data.train_split=", "data.val_split=")
    more = (*lists, f"model.init_from={tmp_path / 'a/model'}", "global_batch=8", "augmentation.crop_area=[0.5,1.0]")
    second = load_model(train(small(tmp_path / "b", *more), quiet=True).model).training_data
    assert second is not None
    files = sorted(videos.rglob("*.mp4"))
    assert {_fingerprint_video(file) for file in files} | {"motion:easy/train/0"} == set(second.train.spans)
    assert (second.left_out, second.unknown) == (0, ())


def test_a_start_without_a_list_is_named(tmp_path: Path) -> None:
    train(small(tmp_path / "a"), quiet=True)
    (tmp_path / "a/model/training_data.json").unlink()
    done = train(small(tmp_path / "b", f"model.init_from={tmp_path / 'a/model'}"), quiet=True)
    learnt = load_model(done.model).training_data
    assert learnt is not None
    assert learnt.unknown == ("a",)
