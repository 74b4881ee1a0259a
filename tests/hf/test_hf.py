"""Inside transformers a model computes, reads and saves what it does here; nothing of a folder's code runs unasked."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.inference.conftest import make_model
from tests.video.numbered import write_video

pytest.importorskip("transformers")

import transformers
from transformers.models.auto.video_processing_auto import AutoVideoProcessor

from motionformer import Predictor, create_model, load_model
from motionformer.errors import CheckpointError, EvaluationError, VideoError
from motionformer.hf import MotionformerConfig, MotionformerForVideoClassification, MotionformerVideoProcessor
from motionformer.models import Motionformer

transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module")
def network() -> Motionformer:
    return make_model()


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clips") / "clip.mp4", num_frames=40)


@pytest.fixture(scope="module")
def folder(network: Motionformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    network.save_pretrained(folder, hf=True)
    return folder


@pytest.fixture(scope="module")
def pixels(clip: Path, network: Motionformer) -> torch.Tensor:
    return MotionformerVideoProcessor.of(network, views=1, crops=1)([clip, clip])["pixel_values"]


def test_round_trips_are_exact(network: Motionformer, folder: Path, pixels: torch.Tensor, tmp_path: Path) -> None:
    """Ours → transformers → its folder → both, bit by bit; labels stay."""
    wanted = network(pixels.transpose(1, 2))
    model = transformers.AutoModelForVideoClassification.from_pretrained(folder)
    assert type(model) is MotionformerForVideoClassification
    assert torch.equal(model(pixels).logits, wanted)
    assert list(model.config.id2label.values()) == list(network.config.labels or ())
    model.save_pretrained(tmp_path)
    again = MotionformerForVideoClassification.from_pretrained(tmp_path)
    assert torch.equal(again(pixels).logits, wanted)
    assert again.config.to_diff_dict() == model.config.to_diff_dict()
    for source in (folder, tmp_path):
        ours = load_model(source)
        assert torch.equal(ours(pixels.transpose(1, 2)), wanted)
        assert ours.config == network.config
    assert torch.equal(Motionformer.from_pretrained(str(folder))(pixels.transpose(1, 2)), wanted)
    assert torch.equal(MotionformerForVideoClassification.wrap(network)(pixels).logits, wanted)


REMOTE = """
import sys, torch, transformers
folder, clip = sys.argv[1:]
assert "motionformer" not in sys.modules
try:
    transformers.AutoModelForVideoClassification.from_pretrained(folder, trust_remote_code=False)
except ValueError as error:
    assert "trust_remote_code" in str(error), error
else:
    raise AssertionError("code of a folder was run without being asked for")
assert "motionformer" not in sys.modules
pipe = transformers.pipeline("video-classification", model=folder, trust_remote_code=True)
assert type(pipe.model).__module__ == "motionformer.hf.model"
print([(one["label"], one["score"]) for one in pipe(clip)])
"""


def test_a_process_that_never_imported_the_package(folder: Path, clip: Path, network: Motionformer) -> None:
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_MODULES_CACHE": str(folder / "cache")}
    words = [sys.executable, "-c", REMOTE, str(folder), str(clip)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = eval(done.stdout.splitlines()[-1])
    top = Predictor(network)(clip).top(5)
    assert [label for label, _ in found] == [one.label for one in top]
    np.testing.assert_allclose([score for _, score in found], [one.score for one in top], atol=1e-6)


def test_code_of_a_folder_is_never_run_where_the_package_is_there(folder: Path, tmp_path: Path) -> None:
    for file in folder.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (tmp_path / "modeling_motionformer.py").write_text("raise SystemExit('the code of the folder ran')")
    transformers.AutoModelForVideoClassification.from_pretrained(tmp_path)
    AutoVideoProcessor.from_pretrained(tmp_path, trust_remote_code=True)
    load_model(tmp_path)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_the_pipeline_takes_the_frames_of_the_predictor(scoring: str, clip: Path) -> None:
    """Three views in three crops; scores of views are averaged, not their logits."""
    network = make_model(scoring=scoring)
    model, processor = MotionformerForVideoClassification.wrap(network), MotionformerVideoProcessor.of(network)
    predictor = Predictor(network)
    views = predictor.reader.read(clip)
    wanted = torch.stack(list(predictor.reader.clips(views)))
    inputs = processor(clip)
    assert inputs["pixel_values"].shape == (1, 9, 4, 3, 16, 16)
    assert torch.equal(inputs["pixel_values"][0].transpose(1, 2), wanted)
    pipe = transformers.pipeline("video-classification", model=model, video_processor=processor)
    found = pipe(str(clip), top_k=5)
    top = predictor(clip).top(5)
    assert [one["label"] for one in found] == [one.label for one in top]
    np.testing.assert_allclose([one["score"] for one in found], [one.score for one in top], atol=1e-6)
    with pytest.raises(VideoError, match="gone"):
        pipe("gone.mp4")


def test_a_processor_of_another_model_is_an_error_that_says_what_differs(clip: Path, network: Motionformer) -> None:
    model = MotionformerForVideoClassification.wrap(network)

    def run(**changes: Any) -> None:
        processor = MotionformerVideoProcessor.of(make_model(**changes))
        transformers.pipeline("video-classification", model=model, video_processor=processor)(str(clip))

    run(views=1, crops=1)  # fewer views are fewer views
    with pytest.raises(ValueError, match="takes clips of 4 frames, this processor makes 8"):
        run(frames=8)
    for changes, message in (
        ({"stride": 6}, r"takes: stride \(6, not 3\)\."),
        ({"fps": None, "channels": "BGR"}, r"fps \(the video's own, not 30\), channels \(BGR, not RGB\)"),
        ({"mean": (0.4, 0.5, 0.5)}, r"mean \(0.4, not 0.5\)"),
        ({"protocol": "released"}, r"protocol \(released, not uniform\)"),
        ({"interpolation": "bicubic"}, r"interpolation \(bicubic, not bilinear\)"),
    ):
        with pytest.raises(ValueError, match=message):
            run(**changes)


def test_the_processor_is_saved_and_found(folder: Path, clip: Path, tmp_path: Path) -> None:
    processor = AutoVideoProcessor.from_pretrained(folder)
    assert type(processor) is MotionformerVideoProcessor
    single = MotionformerVideoProcessor.from_pretrained(folder, views=1, crops=1)
    single.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "video_preprocessor_config.json").read_text())["views"] == 1
    again = MotionformerVideoProcessor.from_pretrained(tmp_path)
    rows = [{"video": clip.read_bytes()}, str(clip)]
    assert torch.equal(again(rows)["pixel_values"], processor([clip, clip], views=1, crops=1)["pixel_values"])
    for wrong, message in (
        ({"return_tensors": "np"}, "must be 'pt'"),
        ({"do_sample_frames": False}, "always sampled"),
        ({"fps": 10.0}, "its own rate"),
    ):
        with pytest.raises(ValueError, match=message):
            processor(clip, **wrong)
    with pytest.raises(ValueError, match="has no 'frame'"):
        MotionformerVideoProcessor({"frame": 4})
    with pytest.raises(EvaluationError, match=r"`crops` \(2\)"):
        MotionformerVideoProcessor.from_pretrained(folder, crops=2)


def test_outputs_of_the_model(network: Motionformer, pixels: torch.Tensor) -> None:
    model = MotionformerForVideoClassification.wrap(network)
    out = model(pixels, labels=torch.tensor([1, 4]), output_hidden_states=True)
    torch.testing.assert_close(out.loss, torch.nn.functional.cross_entropy(out.logits, torch.tensor([1, 4])))
    assert [tuple(state.shape) for state in out.hidden_states] == [(2, 9, 24)] * 3
    assert torch.equal(network.norm(out.hidden_states[-1]), network.forward_features(pixels.transpose(1, 2)))
    assert torch.equal(model(pixels, return_dict=False)[0], out.logits)
    with pytest.raises(ValueError, match="record_attention"):
        model(pixels, output_attentions=True)
    with pytest.raises(ValueError, match=r"must be \[b t 3 H W\]"):
        model(pixels.transpose(1, 2))
    several = MotionformerForVideoClassification.wrap(make_model(scoring="sigmoid"))
    assert several.config.problem_type == "multi_label_classification"
    truth = torch.eye(5)[:2]
    loss = several(pixels, labels=truth).loss
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(several(pixels).logits, truth)
    torch.testing.assert_close(loss, wanted)


def test_a_new_classifier(folder: Path, pixels: torch.Tensor, tmp_path: Path) -> None:
    """As transformers' users ask for it; what is saved then has the new classes, for `load_model` too."""
    names = {0: "yes", 1: "no"}
    model = MotionformerForVideoClassification.from_pretrained(
        folder, num_labels=2, id2label=names, label2id={"yes": 0, "no": 1}, ignore_mismatched_sizes=True
    )
    assert model(pixels).logits.shape == (2, 2)
    assert 0.01 < model.model.head.classifier.weight.std() < 0.03
    assert torch.equal(model.model.prefix, load_model(folder).prefix)
    model.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert ours.config.labels == ("yes", "no")
    assert torch.equal(ours(pixels.transpose(1, 2)), model(pixels).logits)


def test_half_a_file_and_other_models_are_errors(folder: Path, tmp_path: Path) -> None:
    for file in folder.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: value for name, value in tensors.items() if "blocks.1" not in name}, tmp_path / "model.safetensors"
    )
    with pytest.raises(CheckpointError, match=r"tensors are missing \(model.blocks.1"):
        MotionformerForVideoClassification.from_pretrained(tmp_path)
    save_file({**tensors, "blocks.9.norm.bias": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1 tensors are unexpected \(.*blocks.9.norm.bias\)"):
        MotionformerForVideoClassification.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"not a readable safetensors file"):
        MotionformerForVideoClassification.from_pretrained(tmp_path)
    transformers.VideoMAEConfig().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"another family \('videomae'\)"):
        MotionformerForVideoClassification.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no video was given"):
        MotionformerVideoProcessor.from_pretrained(folder)([])
    with pytest.raises(ValueError, match="one head with classes"):
        make_model(num_classes={"verb": 2, "noun": 3}, labels=None).save_pretrained(tmp_path / "two", hf=True)
    assert not (tmp_path / "two").exists()
    with pytest.raises(ValueError, match="must be single- or multi_label"):
        MotionformerForVideoClassification(MotionformerConfig(problem_type="regression"))


def test_a_plain_folder_replaces_one_for_transformers(tmp_path: Path) -> None:
    model = make_model()
    model.save_pretrained(tmp_path, hf=True)
    model.save_pretrained(tmp_path)
    assert not [file.name for file in tmp_path.iterdir() if file.suffix == ".py" or "processor" in file.name]
    assert set(json.loads((tmp_path / "config.json").read_text())) == {"architecture"}


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Clips of two classes that differ in brightness."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(index))
        return {"pixel_values": noise + (2.0 if index % 2 else -2.0), "labels": index % 2}


@pytest.fixture(scope="module")
def learner() -> MotionformerForVideoClassification:
    torch.manual_seed(0)
    network = create_model("motionformer-tiny", depth=1, frames=4, size=16, num_classes=2)
    return MotionformerForVideoClassification.wrap(network)


def test_trainer(learner: MotionformerForVideoClassification, tmp_path: Path) -> None:
    """The loss falls, gradient checkpointing included; the checkpoint is resumed from, and loads here."""
    options = {"logging_steps": 1, "report_to": [], "save_steps": 10, "use_cpu": True, "disable_tqdm": True}
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=10,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        activation_checkpointing=True,
        **options,
    )
    trainer = transformers.Trainer(learner, arguments, train_dataset=Rows())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.5 * losses[0]
    assert learner.model.config.checkpointing
    clips = torch.stack([Rows()[i]["pixel_values"] for i in range(4)])
    learner.eval()
    saved = load_model(tmp_path / "checkpoint-10")
    assert torch.equal(saved(clips.transpose(1, 2)), learner(clips).logits)
    assert saved(clips.transpose(1, 2)).argmax(1).tolist() == [0, 1, 0, 1]
    resumed = transformers.Trainer(
        MotionformerForVideoClassification(learner.config), replace_steps(arguments, 11), train_dataset=Rows()
    )
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 11
    assert resumed.state.log_history[-2]["loss"] < 0.5 * losses[0]


def replace_steps(arguments: Any, steps: int) -> Any:
    return replace(arguments, max_steps=steps)


def test_accelerate(learner: MotionformerForVideoClassification) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=8)
    model, optimizer, loader = accelerator.prepare(learner, optimizer, loader)
    before = model.model.prefix.detach().clone()
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
    assert not torch.equal(before, model.model.prefix)
    assert accelerator.unwrap_model(model) is learner
