import torch

from motionformer.models import create_model


def test_tiny_model_gives_logits() -> None:
    assert create_model("motionformer-tiny")(torch.zeros(1, 3, 8, 48, 48)).shape == (1, 8)
