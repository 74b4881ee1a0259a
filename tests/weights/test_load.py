"""Loading: released files, our own folders, other sizes, and everything that can be wrong with a file."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from motionformer import Motionformer, create_model, load_model
from motionformer.errors import CheckpointError, DownloadError, UnknownModelError
from motionformer.weights import RELEASED, load_model_with_report
from motionformer.weights.load import fetch_from_hub, is_hub_name, read_config, short_name
from tests.parity_files import PARITY, close

TINY = PARITY / "tiny_official.pyth"


@pytest.fixture
def released() -> dict:
    return torch.load(TINY, weights_only=True)


def describe(folder: Path, **changes: Any) -> None:
    """Change what `config.json` says of the model."""
    config = json.loads((folder / "config.json").read_text())
    config["architecture"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))


class TestReleased:
    def test_logits_and_metadata(self) -> None:
        expected = load_file(PARITY / "tiny_official.expected.safetensors")
        model, report = load_model_with_report(TINY)
        with torch.no_grad():
            close(model(expected["input"]), expected["output"])
        assert not model.training
        assert not report.changed
        assert model.config.project_values is False
        assert model.config.input.stride == 4
        assert model.config.input.channels == "RGB"
        assert set(report.dropped) == {
            "patch_embed.proj.weight",
            "patch_embed.proj.bias",
            *(f"blocks.{i}.attn.proj_kv.{leaf}" for i in range(2) for leaf in ("weight", "bias")),
        }

    def test_heads_cannot_be_guessed_from_an_odd_width(self, released: dict, tmp_path: Path) -> None:
        del released["cfg"]
        torch.save(released, tmp_path / "x.pyth")
        with pytest.raises(CheckpointError, match=r"width 48 is not a multiple of 64.*give num_heads"):
            load_model(tmp_path / "x.pyth")
        assert load_model(tmp_path / "x.pyth", num_heads=4).config.num_heads == 4

    def test_epic_is_bgr_and_has_two_heads(self, tmp_path: Path) -> None:
        file = load_file(PARITY / "epic_traj_orig.safetensors")
        state = {k.removeprefix("weights."): v for k, v in file.items() if k.startswith("weights.")}
        torch.save({"model_state": state, "cfg": "VIT: {NUM_HEADS: 4}"}, tmp_path / "ek.pyth")
        model = load_model(tmp_path / "ek.pyth")
        assert model.config.input.channels == "BGR"
        close(model(file["input"])["noun"], file["output_noun"])

    @pytest.mark.parametrize("kind", ["joint", "divided"])
    @pytest.mark.parametrize("approximation", ["orthoformer", "nystrom", "performer"])
    def test_joint_and_divided_layers_know_no_approximation(
        self, kind: str, approximation: str, tmp_path: Path
    ) -> None:
        file = load_file(PARITY / f"{kind}.safetensors")
        state = {k.removeprefix("weights."): v for k, v in file.items() if k.startswith("weights.")}
        cfg = f"VIT: {{NUM_HEADS: 4, APPROX_ATTN_TYPE: {approximation}, APPROX_ATTN_DIM: 2}}"
        torch.save({"model_state": state, "cfg": cfg}, tmp_path / "x.pyth")
        model, report = load_model_with_report(tmp_path / "x.pyth")
        with torch.no_grad():
            close(model(file["input"]), file["output"])
        assert f"its configuration names {approximation}; {kind} attention ignores it" in str(report)

    def test_trajectory_layers_follow_it_and_report_nothing(self, released: dict, tmp_path: Path) -> None:
        torch.save(
            {"model_state": released["model_state"], "cfg": "VIT: {NUM_HEADS: 4, APPROX_ATTN_TYPE: nystrom}"},
            tmp_path / "x.pyth",
        )
        model, report = load_model_with_report(tmp_path / "x.pyth")
        assert model.config.kernel.kind == "nystrom"
        assert not report.notes

    def test_sixteen_names(self) -> None:
        assert len(RELEASED) == 16
        assert RELEASED["ssv2_motionformer_336_16x4"].input.sampling == "segments"
        assert RELEASED["ek_motionformer_224_32x3"].input.channels == "BGR"
        assert RELEASED["k600_motionformer_336_16x8"].input.stride == 8

    def test_joint_positions_and_wrappers(self, released: dict, tmp_path: Path) -> None:
        state = released["model_state"]
        del state["temp_embed"]
        state["st_embed"] = torch.randn(1, 1 + 4 * 2 * 2, 48)
        wrapped = {f"module.{name}": value for name, value in state.items()}
        torch.save({"state_dict": wrapped, "cfg": released["cfg"]}, tmp_path / "x.pyth")
        model, report = load_model_with_report(tmp_path / "x.pyth")
        assert torch.equal(model.positions.table, state["st_embed"][0, 1:])
        assert report.dropped["pos_embed"] == "a joint position embedding replaces it"
        larger, report = load_model_with_report(tmp_path / "x.pyth", frames=12, size=64)
        assert larger.positions.table.shape == (6 * 4 * 4, 48)
        assert "positions.table" in report.resized
        wrapped["other.weight"] = torch.zeros(2)
        torch.save({"state_dict": wrapped, "cfg": released["cfg"]}, tmp_path / "y.pyth")
        with pytest.raises(CheckpointError, match=r"other\.weight"):
            load_model(tmp_path / "y.pyth")


class TestOtherSizes:
    def test_classes_frames_and_size_are_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        model, report = load_model_with_report(TINY, num_classes=7, frames=16, size=(48, 64))
        assert model(torch.zeros(1, 3, 16, 48, 64)).shape == (1, 7)
        assert report.resized == {"positions.space": "196 positions to 12", "positions.time": "4 frames to 8"}
        assert set(report.reset) == {"head.classifier.weight", "head.classifier.bias"}
        load_model(TINY, num_classes=7)
        assert "5 classes in the file, 7 in the model" in caplog.text

    def test_resized_tables_give_what_interpolation_in_the_forward_pass_gives(self) -> None:
        plain, resized = load_model(TINY), load_model(TINY, frames=16, size=64)
        clip = torch.randn(1, 3, 16, 64, 64)
        close(resized(clip), plain(clip))

    def test_from_one_head_to_two(self) -> None:
        model, report = load_model_with_report(TINY, num_classes={"verb": 3, "noun": 4})
        assert set(model(torch.zeros(1, 3, 8, 32, 32))) == {"verb", "noun"}
        assert report.dropped["head.classifier.weight"] == "the model has other classes"


class TestOurs:
    def test_saved_and_loaded(self, tmp_path: Path) -> None:
        model = create_model("motionformer-tiny", kernel="performer").eval()
        model.save_pretrained(tmp_path / "m")
        clip = torch.randn(1, 3, 8, 48, 48)
        for again in (load_model(tmp_path / "m"), Motionformer.from_pretrained(tmp_path / "m").eval()):
            assert torch.equal(again(clip), model(clip))
            assert again.config == model.config

    def test_another_number_of_heads_is_refused(self, tmp_path: Path) -> None:
        create_model("motionformer-tiny", depth=1).save_pretrained(tmp_path)
        assert load_model(tmp_path, num_heads=4).config.num_heads == 4
        with pytest.raises(CheckpointError, match="has 4 heads, not 2"):
            load_model(tmp_path, num_heads=2)

    def test_labels_follow_the_classes(self, tmp_path: Path) -> None:
        from dataclasses import replace

        model = create_model("motionformer-tiny", num_classes=2)
        model.config = replace(model.config, labels=("left", "right"))
        model.save_pretrained(tmp_path)
        assert load_model(tmp_path).config.labels == ("left", "right")
        assert load_model(tmp_path, num_classes=3).config.labels is None
        assert load_model(tmp_path, labels=["a", "b", "c"]).config.labels == ("a", "b", "c")

    def test_the_card_says_what_it_is_and_claims_no_licence(self, tmp_path: Path) -> None:
        model = create_model("motionformer-tiny", labels=["wave", "a | b"], source="k400_motionformer_224_16x4")
        model.save_pretrained(tmp_path)
        card = (tmp_path / "README.md").read_text(encoding="utf-8")
        assert "8 frames at stride 1, 48 × 48 pixels, RGB" in card
        assert "| classes | wave, a \\| b |" in card
        assert "`k400_motionformer_224_16x4`, whose licence holds" in card
        assert "license:" not in card
        assert "More Information Needed" not in card
        create_model("motionformer-tiny", num_classes={"verb": 97, "noun": 300}, depth=1).save_pretrained(
            tmp_path / "two"
        )
        assert "97 of verb, 300 of noun" in (tmp_path / "two/README.md").read_text(encoding="utf-8")

    def test_push_goes_through_the_hub_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import HfApi

        calls = {}
        monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **o: type("R", (), {"repo_id": repo_id})())

        def upload(self, repo_id, folder_path, **options):  # type: ignore[no-untyped-def]
            calls["files"] = {path.name for path in Path(folder_path).iterdir()}
            return "done"

        monkeypatch.setattr(HfApi, "upload_folder", upload)
        create_model("motionformer-tiny", depth=1).push_to_hub("someone/model", token="x")
        assert {"config.json", "model.safetensors"} <= calls["files"]


class _Shell:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (os.system, ("echo executed",))


class _Evil:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (print, ("executed",))


class TestWrongFiles:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("x.pyth", b"", "the file is empty"),
            ("x.pyth", b"hello, this is text", "not a checkpoint"),
            ("x.pyth", bytes(range(256)) * 40, "not a checkpoint"),
            ("x.safetensors", b"hello, this is text", "not a readable safetensors file"),
        ],
    )
    def test_not_a_checkpoint(self, name: str, content: bytes, message: str, tmp_path: Path) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=message) as caught:
            load_model(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)

    def test_pickled_code_is_refused_and_not_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        torch.save({"model_state": {"x": _Evil()}}, tmp_path / "zip.pyth")
        (tmp_path / "plain.pyth").write_bytes(pickle.dumps(_Evil(), protocol=2))
        for name in ("zip.pyth", "plain.pyth"):
            with pytest.raises(CheckpointError, match=r"would run code when it is opened \(\w+\.print\)"):
                load_model(tmp_path / name)
        assert "executed" not in capsys.readouterr().out
        torch.save({"x": _Shell()}, tmp_path / "blocked.pyth")  # of a module that PyTorch names in another sentence
        with pytest.raises(CheckpointError, match=r"would run code when it is opened \((posix|nt)\.system\)"):
            load_model(tmp_path / "blocked.pyth")

    def test_truncated(self, tmp_path: Path) -> None:
        whole = TINY.read_bytes()
        for share in (0.1, 0.5, 0.99):
            (tmp_path / "x.pyth").write_bytes(whole[: int(share * len(whole))])
            with pytest.raises(CheckpointError, match="not a checkpoint, or a damaged one"):
                load_model(tmp_path / "x.pyth")

    def test_a_missing_tensor_is_named(self, released: dict, tmp_path: Path) -> None:
        del released["model_state"]["blocks.1.mlp.fc2.bias"]
        torch.save(released, tmp_path / "x.pyth")
        with pytest.raises(CheckpointError, match=r"'blocks.1.mlp.fc2.bias' is missing \(1 are, in all\)"):
            load_model(tmp_path / "x.pyth")

    def test_a_missing_classifier_is_no_reason_for_a_random_one(self, tmp_path: Path) -> None:
        create_model("motionformer-tiny", depth=1).save_pretrained(tmp_path)
        weights = load_file(tmp_path / "model.safetensors")
        kept = {name: value for name, value in weights.items() if not name.startswith("head.classifier.")}
        save_file(kept, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=r"'head.classifier.bias' is missing \(2 are, in all\)"):
            load_model(tmp_path)
        with pytest.raises(CheckpointError, match=r"'head.classifier.bias' is missing"):
            load_model(tmp_path, num_classes=8)
        assert load_model(tmp_path, num_classes=3).config.num_classes == 3

    def test_a_classifier_of_other_classes_than_described(self, tmp_path: Path) -> None:
        create_model("motionformer-tiny", depth=1).save_pretrained(tmp_path)
        describe(tmp_path, num_classes=5)
        with pytest.raises(CheckpointError, match=r"'head.classifier.(weight|bias)' is \(8,.*, the model needs \(5,"):
            load_model(tmp_path)
        describe(tmp_path, num_classes={"verb": 3, "noun": 4})
        with pytest.raises(CheckpointError, match=r"the model has no tensor 'head.classifier.(weight|bias)'"):
            load_model(tmp_path)

    @pytest.mark.parametrize("attention", ["trajectory", "joint"])
    def test_a_config_of_another_clip_size(self, attention: str, tmp_path: Path) -> None:
        made = create_model("motionformer-tiny", depth=1, size=64, attention=attention)
        made.save_pretrained(tmp_path)
        spec = json.loads((tmp_path / "config.json").read_text())["architecture"]["input"]
        describe(tmp_path, input={**spec, "height": 48, "width": 48})
        message = r"'positions.space' is \(64, 96\), but a model for 4 × 6 × 6 tokens.*has 36 entries"
        for size in (None, 64, 96):
            with pytest.raises(CheckpointError, match=message) as caught:
                load_model(tmp_path, size=size)
            assert str(tmp_path) in str(caught.value)

    def test_a_config_of_another_frame_count(self, tmp_path: Path) -> None:
        create_model("motionformer-tiny", depth=1, positions="joint").save_pretrained(tmp_path)
        spec = json.loads((tmp_path / "config.json").read_text())["architecture"]["input"]
        describe(tmp_path, input={**spec, "frames": 10})
        with pytest.raises(CheckpointError, match=r"'positions.table' is \(144, 96\).*has 180 entries"):
            load_model(tmp_path)

    @pytest.mark.parametrize(
        "changes",
        [
            {"num_heads": 7},
            {"num_heads": 0},
            {"attention": "foo"},
            {"scoring": "foo"},
            {"tubelet": 0},
            {"dim": "x"},
            {"dim": -1},
            {"depth": None},
            {"input": 3},
            {"input": {"frames": "x"}},
            {"kernel": {"kind": "foo"}},
            {"kernel": 3},
            {"head_activation": "foo"},
            {"position_grid": 3},
            {"labels": ["jump", "run"]},
        ],
    )
    def test_a_config_that_makes_no_model(self, changes: dict[str, Any], tmp_path: Path) -> None:
        create_model("motionformer-tiny", depth=1).save_pretrained(tmp_path)
        describe(tmp_path, **changes)
        for load in (load_model, read_config):
            with pytest.raises(
                CheckpointError, match=r"(config.json|its configuration) does not describe a model"
            ) as caught:
                load(tmp_path)
            assert str(tmp_path / "model.safetensors") in str(caught.value)

    def test_heads_that_do_not_divide_the_width(self) -> None:
        with pytest.raises(CheckpointError, match=r"tiny_official.pyth: a width of 48 is not a multiple of 7 heads"):
            load_model(TINY, num_heads=7)

    def test_a_misshapen_tensor_is_named(self, released: dict, tmp_path: Path) -> None:
        released["model_state"]["blocks.1.attn.proj.weight"] = torch.zeros(48, 47)
        torch.save(released, tmp_path / "x.pyth")
        with pytest.raises(
            CheckpointError, match=r"'blocks.1.attn.proj.weight' is \(48, 47\), the model needs \(48, 48\)"
        ):
            load_model(tmp_path / "x.pyth")

    def test_a_stray_tensor_is_named(self, released: dict, tmp_path: Path) -> None:
        released["model_state"]["blocks.0.attn.rel_pos"] = torch.zeros(3)
        torch.save(released, tmp_path / "x.pyth")
        with pytest.raises(CheckpointError, match=r"the model has no tensor 'blocks.0.attn.rel_pos'"):
            load_model(tmp_path / "x.pyth")

    def test_something_else(self, tmp_path: Path) -> None:
        torch.save({"model_state": {"conv1.weight": torch.zeros(3)}}, tmp_path / "x.pyth")
        with pytest.raises(CheckpointError, match="neither a released video model"):
            load_model(tmp_path / "x.pyth")
        torch.save({"epoch": 3}, tmp_path / "y.pyth")
        with pytest.raises(CheckpointError, match=r"holds no tensors \(found: epoch\)"):
            load_model(tmp_path / "y.pyth")
        torch.save([1, 2], tmp_path / "z.pyth")
        with pytest.raises(CheckpointError, match="holds a list, not named tensors"):
            load_model(tmp_path / "z.pyth")

    def test_our_folder_with_parts_missing(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"holds config.json and model.safetensors .* this one does not"):
            load_model(tmp_path)
        save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=r"no config.json beside it"):
            load_model(tmp_path)
        (tmp_path / "config.json").write_text("{broken")
        with pytest.raises(CheckpointError, match="not JSON"):
            load_model(tmp_path)


class TestNames:
    def test_an_architecture_is_not_weights(self) -> None:
        with pytest.raises(UnknownModelError, match=r"create_model\('motionformer-base'\) makes a new one"):
            load_model("motionformer-base")

    def test_unknown(self) -> None:
        with pytest.raises(UnknownModelError, match=r"is no file, no folder, and no released name"):
            load_model("nothing.pyth")

    @pytest.mark.parametrize(
        ("source", "is_one"),
        [
            ("someone/model", True),
            ("someone/motionformer-v1.0", True),
            ("runs/model.safetensors", False),
            ("./model", False),
            ("/model", False),
            ("a/b/c", False),
            ("model", False),
        ],
    )
    def test_names_of_the_hub(self, source: str, is_one: bool) -> None:
        assert is_hub_name(source) == is_one

    @pytest.mark.parametrize("wrong", ["{VIT: {NUM_HEADS: four}}", "{VIT: {NUM_HEADS: 0}}", "{VIT: }", "{VIT: [1]}"])
    def test_a_configuration_that_makes_no_model_names_its_file(self, wrong: str, tmp_path: Path) -> None:
        content = torch.load(PARITY / "tiny_official.pyth", weights_only=True)
        torch.save({**content, "cfg": wrong}, tmp_path / "wrong.pyth")
        with pytest.raises(CheckpointError, match=r"wrong\.pyth: "):
            load_model(tmp_path / "wrong.pyth")

    def test_the_hub_offline_says_what_to_do(self) -> None:
        def refuse(repo: str, file: str) -> str:
            raise OSError("no route to host")

        with pytest.raises(DownloadError, match=r"no route to host.*put the files in a folder and give its path"):
            fetch_from_hub("someone/model", "model.safetensors", get=refuse)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("motion-tiny", "motion-tiny"),
        ("runs/gestures/model", "gestures"),
        (Path("/data/base.pyth"), "base.pyth"),
        ("model", "model"),
        ("someone/their-model", "their-model"),
    ],
)
def test_a_run_names_its_model(source: str | Path, name: str) -> None:
    assert short_name(source) == name
