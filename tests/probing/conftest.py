"""A few made videos and a random image model, probed once for all tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import save_file

from motionformer.data.motion import write_videos
from motionformer.probing import ProbeResult, probe
from tests.weights.test_image import timm_weights


@pytest.fixture(scope="session", autouse=True)
def _few_steps() -> Iterator[None]:
    """Enough for heads on some dozens of clips."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("motionformer.probing.heads._STEPS", 30)
        patch.setattr("motionformer.probing.selection._DRAWS", 1)
        yield


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than everything else."""
    monkeypatch.setattr("motionformer.probing.run.write_report", lambda *of_report: None)


@pytest.fixture(scope="session")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "image.safetensors"
    save_file(timm_weights(), file)
    return file


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of 12 videos: a disc that goes left, and one that goes right."""
    made = tmp_path_factory.mktemp("made")
    write_videos(made, "easy", 96, frames=8, size=32)
    folder = tmp_path_factory.mktemp("data") / "moves"
    for name in ("left", "right"):
        shutil.copytree(made / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def probed(clips: Path, backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> ProbeResult:
    folder = tmp_path_factory.mktemp("probe")
    return probe(clips, backbone, folder / "out", cache=folder / "cache", frames=4, size=32, num_folds=3, quiet=True)
