"""Which layers and heads are shown, and the evidence for a class."""

from typing import Literal

import numpy as np
import pytest
import torch

from motionformer import create_model
from motionformer.errors import TraceError
from motionformer.tracing import trace
from motionformer.tracing.maps import _choose_heads, _choose_layers, _grad_cam, _Label, _pick_all
from tests.tracing.test_trace import make


class TestChoice:
    rows = torch.arange(24.0).view(2, 3, 4)

    def test_names_and_rows(self) -> None:
        shown = _pick_all(self.rows, _choose_layers("all", 2), _choose_heads("all", 3))
        assert [(layer, head) for layer, head, _ in shown] == [(i, h) for i in "01" for h in "012"]
        assert torch.equal(shown[4][2], self.rows[1, 1])
        [(layer, head, row)] = _pick_all(self.rows, _choose_layers("mean", 2), _choose_heads(2, 3))
        assert (layer, head) == ("mean", "2")
        assert torch.equal(row, self.rows[:, 2].mean(dim=0))

    def test_last_and_numbers(self) -> None:
        assert _choose_layers("last", 12).numbers == (11,)
        assert _choose_layers("3", 12).numbers == (3,)
        assert _choose_heads("mean", 4).names == ("mean",)

    @pytest.mark.parametrize("layer", [12, "12", -1])
    def test_out_of_range(self, layer: int | str) -> None:
        with pytest.raises(TraceError, match=r"no layer -?\d+: the model has 12, counted from 0 to 11"):
            _choose_layers(layer, 12)

    def test_nonsense(self) -> None:
        with pytest.raises(TraceError, match="head must be all, mean or a number; not 'last'"):
            _choose_heads("last", 4)


class TestGradCam:
    @pytest.mark.parametrize("readout", ["class", "motion"])
    def test_equals_the_formula_by_finite_differences(self, readout: Literal["class", "motion"]) -> None:
        """The gradient of the logit for every channel of every token entering a layer, one nudge at a time."""
        sizes = {"depth": 2, "dim": 6, "num_heads": 2, "frames": 4, "size": 16, "patch": 8}
        model = create_model("motionformer-tiny", readout=readout, **sizes).double().eval()
        for parameter in model.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
        clip = torch.randn(1, 3, 4, 16, 16, dtype=torch.float64)
        with torch.no_grad():
            tokens = model.blocks[0](model.embed(clip), 2)

            def logit(x: torch.Tensor) -> float:
                return float(model.head(model.readout(model.norm(model.blocks[1](x, 2)), (2, 2, 2)))[0, 3])

            gradient = torch.zeros_like(tokens)
            for place in np.ndindex(tokens.shape):
                for sign in (1, -1):
                    nudged = tokens.clone()
                    nudged[place] += sign * 1e-5
                    gradient[place] += sign * logit(nudged) / 2e-5
            wanted = (tokens[0, 1:] * gradient[0, 1:].mean(dim=0)).sum(dim=1).clamp(min=0)
        assert torch.allclose(_grad_cam(model, clip, 1, _Label(None, 3)), wanted, atol=1e-6)

    def test_classes_of_several_tasks(self) -> None:
        model = make(num_classes={"verb": 4, "noun": 3})
        assert trace(model, "motion:easy/1", what="gradcam", label="noun:2").label == "noun:2"
        assert trace(model, "motion:easy/1", what="gradcam").label.startswith("verb:")
        with pytest.raises(TraceError, match="verb:0 … verb:3 or noun:0 … noun:2"):
            trace(model, "motion:easy/1", what="gradcam", label="2")
