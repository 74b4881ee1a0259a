"""Files of Synchformer: whose they are, what they compute, and everything that can be wrong with one."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from motionformer import create_model, load_model
from motionformer.errors import CheckpointError, ClipSizeError, UnknownModelError
from motionformer.weights import list_weights, load_model_with_report, load_synchformer
from tests.literal.synchformer import LiteralSynchformer, LiteralVisual, randomise
from tests.parity_files import PARITY


@pytest.fixture(scope="module")
def literal() -> LiteralSynchformer:
    model = randomise(LiteralSynchformer(64, visual=1, audio=1, layers=1, segments=2))
    assert isinstance(model, LiteralSynchformer)
    return model


@pytest.fixture
def state(literal: LiteralSynchformer) -> dict[str, Tensor]:
    return dict(literal.state_dict())


@pytest.fixture
def file(state: dict[str, Tensor], tmp_path: Path) -> Path:
    torch.save(state, tmp_path / "synchformer_state_dict.pth")
    return tmp_path / "synchformer_state_dict.pth"


def pixels(segments: Tensor) -> Tensor:
    """Recorded frames: every pixel stands for 4 × 4."""
    large = segments.repeat_interleave(4, dim=-1).repeat_interleave(4, dim=-2)
    return (large / 255 - 0.5) / 0.5


def recorded(file: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("state."): value for name, value in file.items() if name.startswith("state.")}


class TestVisualHalf:
    def test_equals_what_was_recorded(self, tmp_path: Path) -> None:
        recording = load_file(PARITY / "synchformer.safetensors")
        torch.save(recorded(recording), tmp_path / "half.pth")
        with torch.no_grad():
            found = load_model(tmp_path / "half.pth").sync_features(pixels(recording["frames_56_uint8"]))
        assert (found - recording["visual_features"]).abs().max() <= 1e-5

    def test_equals_every_row_done(self, literal: LiteralSynchformer, file: Path) -> None:
        segments = torch.randn(2, 2, 16, 3, 224, 224)
        model = load_model(file)
        with torch.no_grad():
            expected = literal.vfeat_extractor(segments)
            torch.testing.assert_close(model.sync_features(segments), expected, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(model.sync_features(segments, batch_size=3), expected, atol=1e-5, rtol=1e-5)
        assert expected.shape == (2, 2, 8, 64)

    def test_is_made_for_its_input(self, file: Path) -> None:
        model, report = load_model_with_report(file)
        spec = model.config.input
        assert (spec.frames, spec.stride, spec.fps, spec.hop) == (16, 1, 25.0, 8)
        assert (spec.height, spec.width, spec.interpolation, spec.crops) == (224, 224, "bicubic", 1)
        assert spec.mean == spec.std == (0.5, 0.5, 0.5)
        assert (model.config.attention, model.config.readout, model.config.num_classes) == ("divided", "frames", 0)
        assert not model.training
        assert not report.changed
        assert "tensors of the other parts are read by load_synchformer" in str(report)

    def test_files_of_the_first_training_stage(self, state: dict[str, Tensor], tmp_path: Path) -> None:
        stage = {"vfeat_extractor.": "module.v_encoder.", "afeat_extractor.": "module.a_encoder."}
        renamed = {
            new + name.removeprefix(old): value
            for old, new in stage.items()
            for name, value in state.items()
            if name.startswith(old)
        }
        torch.save({"epoch": 3, "state_dict": {**renamed, "module.logit_scale": torch.tensor(0.07)}}, tmp_path / "s.pt")
        torch.save(state, tmp_path / "whole.pth")
        ours, theirs = load_model(tmp_path / "s.pt"), load_model(tmp_path / "whole.pth")
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))

    def test_survives_a_folder_of_ours(self, file: Path, tmp_path: Path) -> None:
        model = load_model(file)
        model.save_pretrained(tmp_path / "ours")
        again, clip = load_model(tmp_path / "ours"), torch.randn(1, 3, 16, 224, 224)
        assert again.config == model.config
        with torch.no_grad():
            assert torch.equal(again(clip), model(clip))

    def test_another_readout_gives_a_classifier(self, file: Path) -> None:
        model, report = load_model_with_report(file, readout="class", num_classes=5)
        assert model(torch.randn(1, 3, 16, 224, 224)).shape == (1, 5)
        assert sorted(report.reset) == ["head.classifier.bias", "head.classifier.weight"]
        assert report.dropped["readout.token"] == "the model has another readout"
        with pytest.raises(ValueError, match="change `readout` to 'class'"):
            load_model(file, num_classes=5)

    def test_other_models_have_no_sync_features(self) -> None:
        with pytest.raises(ValueError, match=r"this model's readout is 'class'; .*load_model\('synchformer'\)"):
            create_model("divided-tiny").sync_features(torch.zeros(1, 1, 8, 3, 48, 48))

    def test_segments_of_another_layout(self, file: Path) -> None:
        for shape in ((1, 16, 3, 32, 32), (1, 1, 3, 16, 32, 32)):
            with pytest.raises(ClipSizeError, match=r"segments of videos are \[b s t 3 H W\]; these are \[1,"):
                load_model(file).sync_features(torch.zeros(shape))

    @pytest.mark.shared
    def test_equals_the_whole_recording(self, shared: Path, tmp_path: Path) -> None:
        recording = load_file(shared / "parity/protocol/synchformer_visual.safetensors")
        torch.save(recorded(recording), tmp_path / "half.pth")
        model = load_model(tmp_path / "half.pth")
        segments = pixels(recording["frames_56_uint8"])
        with torch.no_grad():
            assert (model.sync_features(segments) - recording["output"]).abs().max() <= 1e-5
            literal = LiteralVisual(128, 2).eval()
            literal.load_state_dict({k.partition(".")[2]: v for k, v in recorded(recording).items()})
            assert (literal(segments) - recording["output"]).abs().max() <= 1e-5


class TestWhole:
    def test_equals_every_row_done(self, literal: LiteralSynchformer, file: Path) -> None:
        model, segments, mel = load_synchformer(file), torch.randn(1, 2, 16, 3, 224, 224), torch.randn(1, 2, 1, 128, 66)
        assert not model.training
        with torch.no_grad():
            found = model(segments, mel)
            torch.testing.assert_close(model.audio_features(mel), literal.afeat_extractor(mel), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(found, literal(segments, mel), atol=1e-5, rtol=1e-5)
        assert found.shape == (1, 21)
        assert [model.offsets[i] for i in (0, 9, 10, 20)] == [-2.0, -0.2, 0.0, 2.0]

    def test_as_many_segments_as_it_has_positions_for(self, file: Path) -> None:
        with pytest.raises(ClipSizeError, match="takes 2 segments of both; not 1 of the video and 2 of the sound"):
            load_synchformer(file).compare(torch.zeros(1, 1, 8, 64), torch.zeros(1, 2, 6, 64))

    def test_a_half_is_not_enough(self, state: dict[str, Tensor], tmp_path: Path) -> None:
        wrong = {
            "holds no comparison": {name: value for name, value in state.items() if "feat_extractor" in name},
            "no audio half and no comparison": {k: v for k, v in state.items() if k.startswith("vfeat")},
            "not a Synchformer": {"weight": torch.zeros(1)},
            r"'transformer.blocks.0.attn.query.bias' is missing": {
                k: v for k, v in state.items() if k != "transformer.blocks.0.attn.query.bias"
            },
            r"'ast.encoder.layer.0.attention.attention.value.weight' is missing": {
                k: v for k, v in state.items() if not k.endswith("layer.0.attention.attention.value.weight")
            },
            r"'audio.norm.bias' is missing \(1 are": {
                k: v for k, v in state.items() if k != "afeat_extractor.ast.layernorm.bias"
            },
            r"'comparison.positions' is \(1, 29, 64\)": state
            | {"transformer.pos_emb_cfg.pos_emb": torch.zeros(1, 29, 64)},
        }
        for message, tensors in wrong.items():
            torch.save(tensors, tmp_path / "wrong.pth")
            with pytest.raises(CheckpointError, match=f"wrong.pth: .*{message}"):
                load_synchformer(tmp_path / "wrong.pth")
        with pytest.raises(
            UnknownModelError, match=r"'nothing\.pth' is no file of Synchformer; 'synchformer' is downloaded"
        ):
            load_synchformer("nothing.pth")

    @pytest.mark.shared
    def test_equals_the_recording(self, shared: Path, tmp_path: Path) -> None:
        recording = load_file(shared / "parity/protocol/synchformer_whole.safetensors")
        torch.save(recorded(recording), tmp_path / "whole.pth")
        model, segments = load_synchformer(tmp_path / "whole.pth"), pixels(recording["frames_56_uint8"])
        with torch.no_grad():
            seen, heard = model.visual.sync_features(segments), model.audio_features(recording["mel"])
            assert (seen - recording["visual_features"]).abs().max() <= 1e-5
            assert (heard - recording["audio_features"]).abs().max() <= 1e-5
            assert (model.compare(seen, heard) - recording["logits"]).abs().max() <= 1e-5
        names = json.loads((shared / "parity/protocol/synchformer_whole.json").read_text())["full_size_state"]
        with torch.device("meta"):
            full = LiteralSynchformer().state_dict()
        assert {name: list(value.shape) for name, value in full.items()} == names


class TestWrongFiles:
    def check(self, state: dict[str, Tensor], folder: Path, message: str) -> None:
        torch.save(state, folder / "wrong.pth")
        with pytest.raises(CheckpointError, match=message) as caught:
            load_model(folder / "wrong.pth")
        assert "wrong.pth" in str(caught.value)

    def test_a_missing_tensor(self, state: dict[str, Tensor], tmp_path: Path) -> None:
        del state["vfeat_extractor.spatial_attn_agg.linear1.weight"]
        self.check(state, tmp_path, r"'readout.layer.mlp.fc1.weight' is missing \(1 are")

    def test_a_tensor_too_many(self, state: dict[str, Tensor], tmp_path: Path) -> None:
        self.check(state | {"vfeat_extractor.temp_attn_agg.x": torch.zeros(1)}, tmp_path, "no tensor 'temp_attn_agg.x'")
        self.check(state | {"mfeat.x": torch.zeros(1)}, tmp_path, "a Synchformer has no tensor 'mfeat.x'")

    def test_a_half_of_it(self, state: dict[str, Tensor], tmp_path: Path) -> None:
        audio = {name: value for name, value in state.items() if not name.startswith("vfeat")}
        self.check(audio, tmp_path, "holds no visual half")

    def test_a_half_file(self, file: Path) -> None:
        file.write_bytes(file.read_bytes()[:-5000])
        with pytest.raises(CheckpointError, match="damaged"):
            load_model(file)

    def test_another_scheme(self, state: dict[str, Tensor], tmp_path: Path) -> None:
        joint = {name: value for name, value in state.items() if ".timeattn." not in name}
        self.check(joint, tmp_path, "has divided attention .*not joint")


def test_the_name_is_listed() -> None:
    assert list_weights("synch*") == ["synchformer"]
