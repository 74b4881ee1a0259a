"""A few made videos and a random image model, probed once for all tests."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from motionformer.data.motion import write_videos
from motionformer.probing import ProbeResult, probe
from tests.weights.test_image import timm_weights


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
