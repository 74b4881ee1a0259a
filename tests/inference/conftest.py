"""A model small enough to run a hundred times, and videos whose frames all differ."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from motionformer.models import InputSpec, ModelConfig, Motionformer
from tests.video.numbered import write_video

CONFIG = ModelConfig(
    dim=24,
    depth=2,
    num_heads=2,
    patch=8,
    tubelet=2,
    hidden_head=False,
    drop_path=0.0,
    num_classes=5,
    labels=("wave", "clap", "jump", "run", "sit"),
    input=InputSpec(frames=4, height=16, width=16, stride=3, fps=30.0, views=3, crops=3),
)


def make_model(**changes: object) -> Motionformer:
    """Weights large enough that different clips get clearly different scores."""
    spec = {key: changes.pop(key) for key in list(changes) if key in InputSpec.__dataclass_fields__}
    torch.manual_seed(0)
    model = Motionformer(replace(CONFIG, input=replace(CONFIG.input, **spec), **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


@pytest.fixture
def model() -> Motionformer:
    return make_model()


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clips") / "clip.mp4", num_frames=40)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos, one of them in a folder of its own, one broken."""
    root = tmp_path_factory.mktemp("videos")
    (root / "sub").mkdir()
    for number, place in enumerate(("a.mp4", "b.mp4", "sub/a.mp4", "sub/d e.mp4")):
        write_video(root / place, num_frames=16 + 7 * number)
    (root / "broken.mp4").write_text("no video")
    return root
