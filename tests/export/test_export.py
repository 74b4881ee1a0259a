"""Exported files compute what the model computes, say how to feed them, and appear only when they do."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from motionformer import create_model
from motionformer.errors import ExportError
from motionformer.export import FORMATS, export_model
from motionformer.export.write import METADATA, Run, _compare
from motionformer.models import KernelConfig, Motionformer
from tests.children import run_code

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
}
reports = {}
for kind, (name, changes) in kinds.items():
    model = small(name, num_classes={"verb": 3, "noun": 2}, **changes)
    for suffix in ("onnx",) if kind in ("orthoformer", "divided") else ("pt2",):
        found = export_model(model, folder / f"{kind}.{suffix}").agreement
        reports[f"{kind}.{suffix}"] = [found.largest, found.largest_output, len(found.differences)]
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
    assert len(reports) == 5
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


def test_the_file_says_how_to_feed_it(tmp_path: Path) -> None:
    labels = ("left", "right", "café")
    model = small("joint-tiny", labels=labels)
    for suffix in FORMATS:
        report = export_model(model, tmp_path / f"model{suffix}")
        beside = json.loads(report.sidecar.read_text(encoding="utf-8"))
        assert beside["labels"] == list(labels)
        assert beside["outputs"] == ["logits"]
        assert beside["clip"]["stride"] == model.config.input.stride
        assert beside["clip"]["mean"] == list(model.config.input.mean)
        assert beside["clip"]["channels"] == "RGB"
        assert beside["inputs"] == {"clip": ["batch", 3, 4, 24, 24]}
    inside = {p.key: json.loads(p.value) for p in onnx.load(tmp_path / "model.onnx").metadata_props if p.key in beside}
    assert inside == beside
    archive = {METADATA: ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=archive)
    assert json.loads(archive[METADATA]) == beside


def test_a_file_that_computes_something_else_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(type(FORMATS[".pt2"])):  # type: ignore[misc]
        def open(self, path: Path, outputs: tuple[str, ...]) -> Run:
            right = super().open(path, outputs)

            def run(clip: Tensor) -> dict[str, Tensor]:
                return {name: out + (2e-4 if clip.shape[0] == 3 else 0) for name, out in right(clip).items()}

            return run

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
    with pytest.raises(ExportError, match=r"model.tflite: .* must be .pt2 or .onnx"):
        export_model(model, tmp_path / "model.tflite")
    with pytest.raises(ExportError, match="there is no folder"):
        export_model(model, tmp_path / "none" / "model.pt2")
    assert list(tmp_path.iterdir()) == []
