"""`torch.hub` finds every model, in a process that has no other way to find the package."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from motionformer import create_model
from motionformer.errors import CheckpointError
from motionformer.models import VARIANTS, KernelConfig

ROOT = Path(__file__).parents[1]
HUB = runpy.run_path(str(ROOT / "hubconf.py"))


def load(entry: str, *args: object, **options: object) -> torch.nn.Module:
    return torch.hub.load(str(ROOT), entry, *args, source="local", **options)


def test_every_variant_is_an_entry_point_with_a_text() -> None:
    for name in (*VARIANTS, "pretrained"):
        assert "num_classes" in HUB[name.replace("-", "_")].__doc__


def test_nothing_else_is_an_entry_point() -> None:
    """What `torch.hub.list` would show."""
    callables = {name for name, value in HUB.items() if callable(value) and not name.startswith("_")}
    assert callables == {name.replace("-", "_") for name in VARIANTS} | {"pretrained"}


def test_true_is_no_name_of_weights() -> None:
    assert HUB["motionformer_tiny"](pretrained=False).config.dim == 96
    with pytest.raises(ValueError, match="pretrained takes the name of weights"):
        HUB["motionformer_tiny"](pretrained=True)


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


def test_weights_of_another_attend_are_refused(tmp_path: Path) -> None:
    from hubconf import _check_kind

    made = {kind: create_model("motionformer-tiny", kernel=KernelConfig(kind=kind)) for kind in ("exact", "performer")}
    _check_kind("motionformer-tiny", "mine", made["exact"])
    with pytest.raises(CheckpointError, match=r"its kernel\.kind is performer, not exact"):
        _check_kind("motionformer-tiny", "mine", made["performer"])


def test_what_it_imports_is_what_it_says_it_needs(tmp_path: Path) -> None:
    """torch.hub checks `dependencies` before anything is imported, and says which are missing."""
    code = "import sys, hubconf; print(*[m.__file__ for n, m in sys.modules.items() if n.startswith('motionformer')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = {name for file in done.stdout.split() for name in imported_at_the_top(Path(file))}
    needed = found - sys.stdlib_module_names - {"motionformer"}
    assert needed == set(runpy.run_path(str(ROOT / "hubconf.py"))["dependencies"])


def imported_at_the_top(file: Path) -> set[str]:
    """Packages that importing this file imports."""
    found = set()
    for line in ast.parse(file.read_text()).body:
        names = [one.name for one in line.names] if isinstance(line, ast.Import) else []
        names += [line.module or ""] if isinstance(line, ast.ImportFrom) else []
        found |= {name.partition(".")[0] for name in names}
    return found


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
