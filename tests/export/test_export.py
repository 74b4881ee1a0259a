"""Exported files compute what the model computes, say how to feed them, and appear only when they do."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from motionformer import Predictor, create_model, trace
from motionformer.errors import EvaluationError, ExportError
from motionformer.export import FORMATS, ExportedModel, export_model, open_model
from motionformer.export.write import METADATA, Opened, _compare, _import_openvino
from motionformer.inference.views import model_fingerprint
from motionformer.models import KernelConfig, Motionformer
from tests.children import run_code
from tests.video.numbered import write_video

ROOT = Path(__file__).parents[2]


def small(name: str, **changes: object) -> Motionformer:
    """One block, few tokens, and weights large enough that logits differ from clip to clip."""
    model = create_model(name, **{"depth": 1, "frames": 4, "size": 24, "num_classes": 3, **changes}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


KINDS = """
import json, sys
from pathlib import Path
import numpy, torch
from motionformer.export import export_model
from motionformer.inference.views import model_fingerprint
from motionformer.models import KernelConfig
from tests.export.test_export import small

torch.set_num_threads(1)
torch.manual_seed(0)
folder = Path(sys.argv[1])
few = KernelConfig("orthoformer", 3)
every_option = KernelConfig(
    "orthoformer", 3, shared=False, candidates="queries+keys", subsample=2, refine=True, ridge=0.01
)
kinds = {
    "trajectory": ("motionformer-tiny", {}),
    "orthoformer": ("motionformer-tiny", {"kernel": few}),
    "every_option": ("motionformer-tiny", {"kernel": every_option}),
    "nystrom": ("joint-tiny", {"kernel": KernelConfig("nystrom", 4)}),
    "divided": ("divided-tiny", {"readout": "motion"}),
    "openvino": ("motionformer-tiny", {}),
}
suffixes = {"orthoformer": "onnx", "divided": "onnx", "openvino": "xml"}
reports = {}
for kind, (name, changes) in kinds.items():
    model = small(name, num_classes={"verb": 3, "noun": 2}, **changes)
    found = export_model(model, folder / f"{kind}.{suffixes.get(kind, 'pt2')}").agreement
    reports[kind] = [found.largest, found.largest_output, len(found.differences)]
    clips = torch.randn(7, 3, 4, 24, 24)
    with torch.no_grad():
        out = model(clips)
    numpy.savez(folder / f"{kind}.npz", clips=clips, **out)
(folder / "reports.json").write_text(json.dumps(reports))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of model, exported in a fresh interpreter: a batch that is open is no `int` to the shape checks."""
    folder = tmp_path_factory.mktemp("exported")
    done = run_code(KINDS, str(folder), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_kind_of_model_exports_and_agrees(exported: Path) -> None:
    reports = json.loads((exported / "reports.json").read_text())
    assert len(reports) == 6
    for kind, (largest, largest_output, count) in reports.items():
        assert largest <= 1e-5 < 0.01 < largest_output, kind
        assert count == 6, kind  # two kinds of clips, three batch sizes


@pytest.mark.parametrize("kind", ["orthoformer", "divided"])
def test_onnxruntime_agrees_at_any_batch(kind: str, exported: Path) -> None:
    session = onnxruntime.InferenceSession(exported / f"{kind}.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 3, 4, 24, 24]
    with np.load(exported / f"{kind}.npz", allow_pickle=False) as kept:
        for batch in (1, 7):
            found = session.run(["verb", "noun"], {"clip": kept["clips"][:batch]})
            for head, logits in zip(("verb", "noun"), found, strict=True):
                np.testing.assert_allclose(logits, kept[head][:batch], atol=1e-5, rtol=0)
    domains = {node.domain for node in onnx.load(exported / f"{kind}.onnx").graph.node}
    assert domains <= {"", "ai.onnx"}  # nothing that another runtime would have to know


def test_what_onnx_cannot_say_is_refused_with_the_way_out(tmp_path: Path) -> None:
    model = small("joint-tiny", kernel=KernelConfig("orthoformer", 2, refine=True, ridge=0.01))
    with pytest.raises(ExportError, match=r"`ridge` solves linear systems.*export it as \.pt2"):
        export_model(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def network() -> Motionformer:
    torch.manual_seed(0)
    return small("joint-tiny", labels=("left", "right", "café"))


@pytest.fixture(scope="module")
def files(network: Motionformer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model in every format, by suffix."""
    folder = tmp_path_factory.mktemp("files")
    return {suffix: export_model(network, folder / f"model{suffix}").path for suffix in FORMATS}


def test_the_file_says_how_to_feed_it(files: dict[str, Path], network: Motionformer) -> None:
    for file in files.values():
        beside = json.loads(file.with_name(file.name + ".json").read_text(encoding="utf-8"))
        assert beside["labels"] == ["left", "right", "café"]
        assert beside["outputs"] == ["logits"]
        assert beside["clip"]["stride"] == network.config.input.stride
        assert beside["clip"]["mean"] == list(network.config.input.mean)
        assert beside["clip"]["channels"] == "RGB"
        assert beside["inputs"] == {"clip": ["batch", 3, 4, 24, 24]}
    inside = {p.key: json.loads(p.value) for p in onnx.load(files[".onnx"]).metadata_props if p.key in beside}
    assert inside == beside
    archive = {METADATA: ""}
    torch.export.load(files[".pt2"], extra_files=archive)
    assert json.loads(archive[METADATA]) == beside
    openvino = _import_openvino()
    text = openvino.Core().read_model(files[".xml"]).get_rt_info(["motionformer"]).astype(str)
    assert json.loads(text) == beside


def test_openvino_runs_without_this_package_at_any_batch(exported: Path) -> None:
    openvino = _import_openvino()
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(exported / "openvino.xml", "CPU", hint)
    with np.load(exported / "openvino.npz", allow_pickle=False) as kept:
        for batch in (1, 7):
            found = compiled([kept["clips"][:batch]])
            for head in ("verb", "noun"):
                np.testing.assert_allclose(found[head], kept[head][:batch], atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clips") / "clip.mp4", num_frames=20)


def test_every_backend_predicts_the_same(files: dict[str, Path], network: Motionformer, clip: Path) -> None:
    wanted = Predictor(network, views=2)(clip)
    for suffix, backend in ((".pt2", "torch"), (".onnx", "onnx"), (".xml", "openvino")):
        predictor = Predictor(files[suffix], views=2)
        found = predictor(clip)
        assert predictor.backend == backend
        assert predictor.labels == Predictor(network).labels
        assert predictor.config == network.config
        np.testing.assert_allclose(found.views["class"], wanted.views["class"], atol=1e-5)
        assert found.facts == wanted.facts
        with pytest.raises(EvaluationError, match="has no layers"):
            trace(predictor, clip)
    coarse = Predictor(files[".xml"], precision="bf16", views=2)(clip)
    np.testing.assert_allclose(coarse.views["class"], wanted.views["class"], atol=0.05)


def test_a_missing_backend_names_its_extra(network: Motionformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a model is exported for its backend and predicts the same runs in docs/pipeline.md."""
    monkeypatch.delitem(sys.modules, "openvino_telemetry", raising=False)
    _import_openvino()
    assert sys.modules["openvino_telemetry"] is None  # nothing is sent on our account
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(EvaluationError, match=r"'openvino' needs openvino: pip install 'motionformer\[openvino\]'"):
        Predictor(network, backend="openvino")


def test_what_a_backend_cannot_do_is_told(files: dict[str, Path], network: Motionformer, tmp_path: Path) -> None:
    for model, options, error, message in (
        (files[".onnx"], {"backend": "openvino"}, EvaluationError, "no file of backend 'openvino', but of 'onnx'"),
        (files[".onnx"], {"protocol": "released"}, EvaluationError, "`protocol` 'uniform', not 'released'"),
        (files[".onnx"], {"precision": "bf16"}, ExportError, r"`precision` \(bf16\) must be 32 for .onnx"),
        (files[".xml"], {"precision": "16"}, ExportError, "must be 32 or bf16"),
        (files[".xml"], {"device": "meta"}, EvaluationError, r"`device` \(meta\) must be cpu"),
        (tmp_path / "gone.onnx", {}, ExportError, "gone.onnx: no such file"),
    ):
        with pytest.raises(error, match=message):
            Predictor(model, **options)
    with pytest.raises(EvaluationError, match=r"`backend` \('tensorrt'\) must be one of torch, onnx, openvino"):
        open_model(network, "tensorrt")
    old = onnx.load(files[".onnx"])
    del old.metadata_props[:]
    onnx.save(old, tmp_path / "old.onnx")
    with pytest.raises(ExportError, match="does not describe its model"):
        Predictor(tmp_path / "old.onnx")
    (tmp_path / "half.xml").write_bytes(files[".xml"].read_bytes()[:500])
    with pytest.raises(ExportError, match=r"half.xml: OpenVINO cannot run it"):
        Predictor(tmp_path / "half.xml")
    assert model_fingerprint(ExportedModel(files[".onnx"])) != model_fingerprint(ExportedModel(files[".xml"]))


def test_a_file_that_computes_something_else_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(type(FORMATS[".pt2"])):  # type: ignore[misc]
        def open(self, path: Path, precision: str = "32") -> Opened:
            metadata, right = super().open(path, precision)

            def run(clip: Tensor) -> dict[str, Tensor]:
                return {name: out + (2e-4 if clip.shape[0] == 3 else 0) for name, out in right(clip).items()}

            return metadata, run

    monkeypatch.setattr("motionformer.export.write.FORMATS", {".pt2": Wrong()})
    target = tmp_path / "model.pt2"
    target.write_text("an older file")
    with pytest.raises(ExportError, match=r"differs from this one by 0\.0002 \(logits, noise, batch of 3\)"):
        export_model(small("joint-tiny"), target)
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt2"]
    assert target.read_text() == "an older file"


def test_not_a_number_is_not_agreement() -> None:
    model = small("joint-tiny")
    with pytest.raises(ExportError, match="differs from this one by nan"):
        _compare(model, lambda clip: {"logits": torch.full((clip.shape[0], 3), float("nan"))})


def test_not_a_number_in_a_later_head_is_none_either() -> None:
    model = small("joint-tiny", num_classes={"verb": 3, "noun": 2}).eval()

    def run(clip: Tensor) -> dict[str, Tensor]:
        return {**model(clip), "noun": torch.full((len(clip), 2), float("nan"))}

    with pytest.raises(ExportError, match=r"differs from this one by nan \(noun, noise"):
        _compare(model, run)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_what_onnxruntime_cannot_compute_is_told(dtype: torch.dtype, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"export model\.float\(\), or write a \.pt2"):
        export_model(small("joint-tiny").to(dtype), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_training_mode_comes_back_and_is_not_exported(tmp_path: Path) -> None:
    model = small("joint-tiny", drop_path=0.9, depth=2).train()
    export_model(model, tmp_path / "model.pt2")
    assert model.training


def test_unusable_targets_say_why(tmp_path: Path) -> None:
    model = small("joint-tiny")
    with pytest.raises(ExportError, match=r"model.tflite: .* must be .pt2 or .onnx or .xml"):
        export_model(model, tmp_path / "model.tflite")
    with pytest.raises(ExportError, match="there is no folder"):
        export_model(model, tmp_path / "none" / "model.pt2")
    assert list(tmp_path.iterdir()) == []
