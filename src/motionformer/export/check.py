"""Does the file compute what the model computes? Several batch sizes, noise and pictures of something moving."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import ExportError
from motionformer.export.contract import Run
from motionformer.export.trace import output_names
from motionformer.models import InputSpec, Motionformer
from motionformer.video.transforms import eval_transform

BATCHES = (1, 2, 3)
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Agreement:
    """Largest absolute differences of the outputs, by kind of input and batch size, and how large outputs were."""

    differences: dict[str, float]
    tolerance: float
    largest_output: float

    @property
    def largest(self) -> float:
        return max(self.differences.values())


@torch.no_grad()
def compare(
    model: Motionformer, run: Run, *, batches: tuple[int, ...] = BATCHES, tolerance: float = TOLERANCE
) -> Agreement:
    """How far `run` is from `model`; an error if it is further than `tolerance` anywhere, or not a number."""
    parameter = next(model.parameters())
    differences: dict[str, float] = {}
    size = 0.0
    for kind, clips in _clips(model.config.input, max(batches)).items():
        clips = clips.to(parameter)
        out = model(clips)
        names = output_names(model.config)
        expected = out if isinstance(out, dict) else {names[0]: out}
        size = max(size, *(float(x.abs().max()) for x in expected.values()))
        for batch in batches:
            found = run(clips[:batch])
            by_name = {name: _distance(expected[name][:batch], found[name]) for name in names}
            for name, difference in by_name.items():
                if not difference <= tolerance:  # also when it is not a number
                    raise ExportError(
                        f"the exported model differs from this one by {difference:.2g} ({name}, {kind}, batch of "
                        f"{batch}); {tolerance:g} is allowed. Nothing was written."
                    )
            differences[f"{kind}, batch of {batch}"] = max(by_name.values())
    return Agreement(differences, tolerance, size)


def _distance(expected: Tensor, found: Tensor) -> float:
    if expected.shape != found.shape:
        raise ExportError(f"the exported model returns {tuple(found.shape)}, this one {tuple(expected.shape)}.")
    return float((expected.cpu().double() - found.cpu().double()).abs().max())


def _clips(spec: InputSpec, num: int) -> dict[str, Float[Tensor, "b 3 t H W"]]:
    noise = torch.randn(num, 3, spec.frames, spec.height, spec.width, generator=torch.Generator().manual_seed(0))
    side = max(spec.height, spec.width)
    moving = MotionBenchmark("hard", "val", num, frames=spec.frames, size=max(side, 16))
    transform = eval_transform(spec)
    return {"noise": noise, "moving disc": torch.stack([transform(moving[i].frames) for i in range(num)])}
