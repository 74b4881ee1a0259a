"""`torch.hub` finds every model, in a process that has no other way to find the package."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from motionformer import create_model
from motionformer.errors import CheckpointError
from motionformer.models import VARIANTS

ROOT = Path(__file__).parents[1]


def load(entry: str, *args: object, **options: object) -> torch.nn.Module:
    return torch.hub.load(str(ROOT), entry, *args, source="local", **options)


def test_every_variant_is_an_entry_point_with_a_text() -> None:
    entries = runpy.run_path(str(ROOT / "hubconf.py"))
    for name in (*VARIANTS, "pretrained"):
        assert "num_classes" in entries[name.replace("-", "_")].__doc__


def test_new_and_pretrained_models(tmp_path: Path) -> None:
    model = load("motionformer_tiny", num_classes=3)
    model.save_pretrained(tmp_path / "weights")
    clip = torch.randn(1, 3, 8, 48, 48)
    for again in (
        load("pretrained", str(tmp_path / "weights")),
        load("motionformer_tiny", pretrained=str(tmp_path / "weights")),
    ):
        with torch.no_grad():
            torch.testing.assert_close(again(clip), model.eval()(clip))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    create_model("joint-tiny").save_pretrained(tmp_path / "weights")
    with pytest.raises(CheckpointError, match="its attention is joint, not trajectory"):
        load("motionformer_tiny", pretrained=str(tmp_path / "weights"))


def test_it_works_where_the_package_is_not_installed(tmp_path: Path) -> None:
    """The repository's own source is used, before an installed one."""
    code = (
        "import torch; "
        f"model = torch.hub.load({str(ROOT)!r}, 'joint_tiny', source='local'); "
        "import motionformer; print(motionformer.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == ROOT / "src/motionformer/__init__.py"
