"""Videos of any number of classes, from the list to the prediction: losses against loops, splits, and a whole run."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from motionformer import load_model
from motionformer.cli import app
from motionformer.data import Annotations, Failure, Record, ShardDataset, open_dataset, write_shards
from motionformer.data.lists import write_list
from motionformer.data.motion import write_video
from motionformer.errors import AnnotationError, EvaluationError, RecipeError
from motionformer.finetuning import plan_finetune
from motionformer.finetuning.options import FinetuneOptions, Hardware
from motionformer.finetuning.split import _split_multi_label, note_shared_files
from motionformer.inference import Predictor, evaluate, open_source, summarise
from motionformer.inference.views import model_fingerprint
from motionformer.models import InputSpec
from motionformer.models.config import ModelConfig
from motionformer.models.variants import create_model
from motionformer.training.datamodule import VideoDataModule
from motionformer.training.model import build_config, build_model
from motionformer.training.objectives import (
    Mix,
    _MultiLabel,
    _SingleLabel,
    find_objective,
)
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.training.run import prepare, train
from motionformer.training.sources import open_sources
from motionformer.video.sample import train_sampler
from tests.data.conftest import raw_reader

COLOURS = ("blue", "green", "red")
CPU = Hardware(False, 16 << 30, 1)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A moving block of some colours: red and green together, say, or of none (grey)."""
    folder = tmp_path_factory.mktemp("colours")
    rng = np.random.default_rng(0)
    lines = ["path,labels"]
    for index in range(32):
        shown = [place for place in range(3) if index >> place & 1]  # blue, green, red
        frames = np.full((4, 32, 32, 3), 90, dtype=np.uint8)
        top, left = rng.integers(0, 10, size=2)
        for t in range(4):
            frames[t, top : top + 16, left + t : left + t + 16] = [230 if 2 - c in shown else 20 for c in range(3)]
        write_video(folder / f"{index:02d}.mp4", frames, 8)
        lines.append(f"{index:02d}.mp4,{'|'.join(COLOURS[place] for place in shown)}")
    (folder / "list.csv").write_text("\n".join(lines) + "\n")
    return folder


def recipe_for(videos: Path, output: Path, *overrides: str) -> Recipe:
    values = {
        "name": "colours",
        "model": {
            "variant": "motionformer-tiny",
            "changes": {
                "dim": 32,
                "num_heads": 2,
                "depth": 1,
                "drop_path": 0.0,
                "patch": 16,
                "input": {"frames": 2, "height": 32, "width": 32, "sampling": "segments", "views": 1, "crops": 1},
            },
        },
        "data": {"train": str(videos / "list.csv"), "val": str(videos / "list.csv"), "workers": 0},
        "augmentation": {"jitter": [32, 32]},
        "optimiser": {"lr": 5e-3, "lr_batch": 8, "weight_decay": 0.0},
        "schedule": {"kind": "cosine"},
        "engine": {"accelerator": "cpu", "validate_epochs": 100},
        "global_batch": 8,
        "epochs": 25,
        "label_smoothing": 0.0,
        "output": str(output),
    }
    return make_recipe(values, overrides)


# --- losses -----------------------------------------------------------------------------------------------------------


def test_the_loss_is_that_of_a_loop() -> None:
    logits, labels = 3 * torch.randn(4, 5), [(0, 3), (), (1,), (0, 1, 2, 3, 4)]
    padded = torch.tensor([[*label, *[-1] * (5 - len(label))] for label in labels])
    mix = Mix(torch.tensor([2, 0, 3, 1]), 0.3)
    objective = _MultiLabel(5)
    targets = mix.mix_targets(objective.targets(padded, 5, 0.2))
    found = objective.losses(logits, targets)

    def target(clip: int, k: int) -> float:
        return 0.9 if k in labels[clip] else 0.1  # a smoothing of 0.2, half of it to each answer

    for i in range(4):
        total = 0.0
        for k in range(5):
            wanted = 0.7 * target(i, k) + 0.3 * target(int(mix.partner[i]), k)
            says = 1 / (1 + math.exp(-float(logits[i, k])))
            total -= wanted * math.log(says) + (1 - wanted) * math.log(1 - says)
        assert float(found[i]) == pytest.approx(total / 5, rel=1e-5)


def test_no_smoothing_is_the_truth_itself() -> None:
    objective, label = _MultiLabel(3), torch.tensor([[2, 0], [-1, -1]])
    truth = objective.truth(label)
    assert truth.tolist() == [[True, False, True], [False, False, False]]
    assert objective.truth(torch.zeros(2, 0, dtype=torch.int64)).sum() == 0
    assert torch.equal(objective.targets(label, 3, 0.0), truth.float())
    large = objective.losses(torch.tensor([[200.0, -200.0, 200.0]]), truth[:1].float())
    assert large.tolist() == [0.0]  # no infinity from log(0)


def test_validation_counts_failed_videos_last_in_every_ranking() -> None:
    objective = _MultiLabel(2)
    metrics = objective.metrics()
    label = torch.tensor([[0], [-1], [1]])
    objective.measure(metrics, {"label": torch.tensor([[2.0, -1.0], [1.0, 0.0], [0.0, 3.0]])}, {"label": label})
    assert float(metrics["map"].compute()) == 1.0
    objective.count_failed(metrics, [Failure("x", "gone", 3, (0,))])
    # class 0: right at rank 1 and at rank 4 of 4; class 1: right at rank 1
    assert float(metrics["map"].compute()) == pytest.approx(((1 + 2 / 4) / 2 + 1) / 2)
    assert float(metrics["loss"].compute()) == pytest.approx(_loop_loss())
    for metric in metrics.values():
        metric.reset()
    objective.count_failed(metrics, [Failure("x", "gone", 3, (0,))])
    assert float(metrics["map"].compute()) == 1.0  # one video alone is first and last


def _loop_loss() -> float:
    rows = [([2.0, -1.0], {0}), ([1.0, 0.0], set()), ([0.0, 3.0], {1})]
    terms = [math.log1p(math.exp(-x if k in truth else x)) for logits, truth in rows for k, x in enumerate(logits)]
    return sum(terms) / len(terms)


def test_the_models_scoring_chooses() -> None:
    assert isinstance(find_objective(ModelConfig(num_classes=3)), _SingleLabel)
    assert isinstance(find_objective(ModelConfig(num_classes=3, scoring="sigmoid")), _MultiLabel)
    assert find_objective(ModelConfig(num_classes={"verb": 2, "noun": 3})).best == "action"
    with pytest.raises(ValueError, match="several heads"):
        find_objective(ModelConfig(num_classes={"verb": 2}, scoring="sigmoid"))


# --- splits -----------------------------------------------------------------------------------------------------------


def made(labels: list[tuple[int, ...]], num_classes: int) -> Annotations:
    records = tuple(Record(Path(f"/v/{i:03d}.mp4"), label) for i, label in enumerate(labels))
    return Annotations(records, tuple(f"c{k}" for k in range(num_classes)), "made")


def test_each_class_is_held_out_by_its_share() -> None:
    rng = np.random.default_rng(1)
    chance = (0.5, 0.3, 0.1, 0.05)
    labels = [tuple(k for k in range(4) if rng.random() < chance[k]) for _ in range(400)]
    whole = made(labels, 4)
    train_list, val_list = _split_multi_label(whole, 0.2, 0)
    assert sorted([*train_list, *val_list], key=lambda r: r.path) == list(whole)
    for name, count in whole.counts().items():
        assert val_list.counts()[name] / count == pytest.approx(0.2, abs=0.06)
    none = sum(record.label == () for record in whole)
    assert sum(record.label == () for record in val_list) / none == pytest.approx(0.2, abs=0.02)
    again, other = _split_multi_label(whole, 0.2, 0)[1], _split_multi_label(whole, 0.2, 1)[1]
    assert again.records == val_list.records != other.records


def test_every_class_is_learned_also_where_it_cannot_be_checked() -> None:
    triangle = made([(0, 1), (0, 2), (1, 2), (3,)], 4)
    for seed in range(8):
        train_list, val_list = _split_multi_label(triangle, 0.9, seed)
        assert all(train_list.counts().values())
        assert len(val_list) >= 1
        assert "c3" in train_list.notes[0]
    # classes 0 to 2 have two videos and may each send the one that also shows class 3 to validation
    star = made([(0, 3), (0,), (1, 3), (1,), (2, 3), (2,)], 4)
    splits = [_split_multi_label(star, 0.5, seed) for seed in range(60)]
    assert all(all(train_list.counts().values()) for train_list, _ in splits)
    with pytest.raises(AnnotationError, match="two videos or more"):
        _split_multi_label(made([(0,), (1,)], 2))


def test_pieces_of_a_file_of_several_classes_stay_on_one_side() -> None:
    def pieces(files: dict[str, list[tuple[int, ...]]]) -> Annotations:
        records = [
            Record(Path("/v") / name, label, float(place), place + 1.0)
            for name, labels in files.items()
            for place, label in enumerate(labels)
        ]
        return Annotations(tuple(records), ("c0", "c1"), "made")

    many = pieces({f"{i}.mp4": [(0,), (0, 1), (), (1,)] for i in range(5)})
    for seed in range(5):
        train_list, val_list = _split_multi_label(many, 0.2, seed)
        assert note_shared_files(train_list, val_list) == ()
        assert (len(train_list), len(val_list)) == (16, 4)
    one = _split_multi_label(pieces({"0.mp4": [(0,), (0, 1), (1,), (0,), (1,)]}), 0.2)
    assert all(one[1].counts().values())
    assert "0.mp4" in note_shared_files(*one)[0]


def test_a_written_list_is_read_as_it_was(tmp_path: Path) -> None:
    before = made([(0, 2), (), (1,)], 3)
    write_list(before, tmp_path / "list.csv")
    after = open_dataset(tmp_path / "list.csv", missing="keep")
    assert after.class_names == before.class_names
    assert [record.label for record in after] == [record.label for record in before]


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "colours"
    finished = train(recipe_for(videos, output), quiet=True)
    assert finished.last["map"] > 0.95
    return output


def test_a_model_learns_several_classes_at_once(videos: Path, trained: Path) -> None:
    """mAP of training and of `evaluate` agree, and the scores of a red and green block are both high: no softmax."""
    model = load_model(trained / "model")
    assert (model.config.scoring, model.config.labels) == ("sigmoid", COLOURS)
    source = open_source(videos / "list.csv", model.config.input)
    results = evaluate(model, source, show_progress=False, allow_overlap=True)
    summary = summarise(results)["tasks"]["class"]
    assert results.header.scoring == "sigmoid"
    card = json.loads((trained / "card.json").read_text())
    assert summary["all"]["map"] == pytest.approx(card["results"]["last"]["map"], abs=1e-6)
    assert {one["class"]: one["videos"] for one in summary["classes"]} == dict.fromkeys(COLOURS, 16)
    assert all(one["average_precision"] > 0.9 for one in summary["classes"])

    predictor = Predictor(model)
    two, nothing = predictor(videos / "06.mp4"), predictor(videos / "08.mp4")  # green and red; grey
    assert {guess.label for guess in two.top() if guess.score > 0.5} == {"green", "red"}
    assert float(two.scores["class"].sum()) > 1.2
    assert max(guess.score for guess in nothing.top()) < 0.5
    index = [id.startswith("06") for id in results.ids].index(True)
    assert two.scores["class"] == pytest.approx(results.averaged("class")[index], abs=1e-5)


def test_the_commands(videos: Path, trained: Path, tmp_path: Path) -> None:
    checked = CliRunner().invoke(app, ["data", "check", str(videos / "list.csv"), "--workers", "1", "--quick"])
    assert "4 of them of no class" in checked.output
    few = tmp_path / "few.csv"  # not every class is in it, and numbers do as well as names
    few.write_text(f"path,labels\n{videos}/01.mp4,blue\n{videos}/02.mp4,1\n{videos}/08.mp4,\n")
    done = CliRunner().invoke(
        app, ["evaluate", str(trained / "model"), str(few), "--workers", "0", "--json", "--allow-overlap"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["tasks"]["class"]
    assert found["num_classes"] == 3
    assert found["classes"][2]["average_precision"] is None  # no red video
    assert found["all"]["map"] == pytest.approx(1.0)


def test_finetune_plans_for_several_classes(videos: Path, tmp_path: Path) -> None:
    planned = plan_finetune(videos / "list.csv", FinetuneOptions(output=str(tmp_path / "run")), hardware=CPU)
    assert (planned.recipe.data.order, planned.recipe.label_smoothing) == ("shuffled", 0.0)
    planned.write_lists()
    prepared = prepare(planned.recipe)
    assert prepared.config.scoring == "sigmoid"
    assert [len(source) for source in prepared.sources] == [len(planned.train), len(planned.val)]
    assert prepared.sources[1].class_names == COLOURS


def test_mixing_smoothing_and_mirrors_go_along(videos: Path, tmp_path: Path) -> None:
    changes = ["augmentation.mixup=0.8", "augmentation.cutmix=1.0", "label_smoothing=0.1", "augmentation.flip=0.5"]
    recipe = recipe_for(videos, tmp_path / "run", *changes, "epochs=1", "engine.validate_epochs=1")
    finished = train(recipe, quiet=True)
    assert math.isfinite(finished.last["loss"])
    assert 0 < finished.last["map"] <= 1


def test_a_video_that_cannot_be_read_lowers_the_validation(videos: Path, trained: Path, tmp_path: Path) -> None:
    header, *lines = (videos / "list.csv").read_text().splitlines()
    val = tmp_path / "val.csv"
    (tmp_path / "broken.mp4").write_bytes(b"nothing")
    val.write_text("\n".join([header, *(f"{videos}/{line}" for line in lines), "broken.mp4,red"]))
    start = f"model.init_from={trained / 'model'}"
    changes = (start, f"data.val={val}", "data.max_failed_share=0.5", "epochs=1", "optimiser.lr=1e-12")
    recipe = recipe_for(videos, tmp_path / "run", *changes)
    finished = train(recipe, quiet=True)
    assert [one["path"] for one in finished.card["failed"]["val"]] == [str(tmp_path / "broken.mp4")]
    model = load_model(finished.model)
    source = open_source(val, model.config.input, class_names=COLOURS)
    results = evaluate(model, source, show_progress=False, allow_overlap=True)
    figures = summarise(results)["tasks"]["class"]
    assert finished.last["map"] == pytest.approx(figures["all"]["map"], abs=1e-6)
    assert figures["all"]["map"] < figures["readable"]["map"]


# --- what does not go together ----------------------------------------------------------------------------------------


def test_what_cannot_be_trained_is_refused(videos: Path, tmp_path: Path) -> None:
    recipe = recipe_for(videos, tmp_path / "run", "data.order=stratified")
    prepared = prepare(recipe)
    with pytest.raises(RecipeError, match=r"data\.order=stratified needs one class per video"):
        VideoDataModule(recipe, prepared.plan, prepared.sources, prepared.config.input)
    one = tmp_path / "one.csv"
    one.write_text("\n".join(["path,label", *(f"{videos}/{i:02d}.mp4,{COLOURS[i % 3]}" for i in range(6))]))
    with pytest.raises(RecipeError, match=r"data\.val has one class per video"):
        open_sources(recipe_for(videos, tmp_path, f"data.val={one}"))
    with pytest.raises(RecipeError, match=r"data\.train has one class per video"):
        open_sources(recipe_for(videos, tmp_path, f"data.train={one}"))
    grey = tmp_path / "grey.csv"
    grey.write_text(f"path,labels\n{videos}/08.mp4,\n")
    with pytest.raises(RecipeError, match=r"no video of .*grey\.csv has a class"):
        open_sources(recipe_for(videos, tmp_path, f"data.val={grey}"))
    strange = tmp_path / "strange.csv"
    strange.write_text(f"path,labels\n{videos}/08.mp4,pink\n")
    with pytest.raises(AnnotationError, match=r"strange\.csv:2: label 'pink' is not among the 3 classes"):
        open_sources(recipe_for(videos, tmp_path, f"data.val={strange}"))
    with pytest.raises(RecipeError, match=r"model\.changes\.scoring follows from the data"):
        prepare(recipe_for(videos, tmp_path, "model.changes.scoring=softmax"))


def test_a_model_and_labels_of_different_kinds_are_refused(videos: Path, trained: Path, tmp_path: Path) -> None:
    several = load_model(trained / "model")
    plain = recipe_for(videos, tmp_path)
    choosing = build_model(plain, build_config(plain, 3, COLOURS))[0].eval()
    one = tmp_path / "one.csv"
    one.write_text("\n".join(["path,label", *(f"{videos}/{i:02d}.mp4,{COLOURS[i % 3]}" for i in range(3))]))
    with pytest.raises(EvaluationError, match="call the column of the list `labels`"):
        evaluate(several, open_source(one, several.config.input))
    with pytest.raises(EvaluationError, match="trained to choose one"):
        evaluate(choosing, open_source(videos / "list.csv", choosing.config.input))
    unknown = evaluate(several, open_source(videos / "06.mp4", several.config.input), show_progress=False)
    assert summarise(unknown)["labelled"] == 0  # without labels there is nothing to disagree about


def test_a_head_that_chooses_one_class_is_not_taken_over(videos: Path, trained: Path, tmp_path: Path) -> None:
    recipe = recipe_for(videos, tmp_path, f"model.init_from={trained / 'model'}")

    def head(scoring: str) -> Tensor:
        config = build_config(recipe, 3, COLOURS, scoring)  # type: ignore[arg-type]
        return build_model(recipe, config)[0].head.classifier.weight  # type: ignore[union-attr]

    stored = load_model(trained / "model").head.classifier.weight  # type: ignore[union-attr]
    assert torch.equal(head("sigmoid"), stored)
    assert not torch.equal(head("softmax"), stored)


def test_results_of_the_models_of_before_keep_their_fingerprint() -> None:
    """Results written before there was a choice of scoring and readout can be resumed."""
    import hashlib

    model = create_model("motionformer-tiny")
    apart = {"input", "labels", "source", "chunk_size", "recompute", "checkpointing", "scoring", "readout"}
    apart |= {"drop_path_time", "activation", "norm_eps", "rotary", "readout_depth", "readout_positions"}
    values = model.config.to_dict()
    values["attend"] = values.pop("kernel")  # its name in 0.1
    kept = {key: value for key, value in values.items() if key not in apart}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    assert model_fingerprint(model) == digest.hexdigest()[:16]
    before = model_fingerprint(model)
    for key, now in (("scoring", "sigmoid"), ("readout", "motion")):
        other = create_model("motionformer-tiny")
        other.load_state_dict(model.state_dict())
        object.__setattr__(other.config, key, now)
        assert model_fingerprint(other) != before


def test_shards_bring_tuples_back(videos: Path, tmp_path: Path) -> None:
    annotations = open_dataset(videos / "list.csv")
    list(write_shards(annotations, tmp_path / "shards", max_bytes=10_000_000))
    reader = raw_reader(train_sampler(InputSpec(frames=2, sampling="segments")))
    items = ShardDataset(str(tmp_path / "shards"), reader, shuffle=False)
    found = {item["index"]: item["label"] for item in items}
    assert found == {index: record.label for index, record in enumerate(annotations)}
