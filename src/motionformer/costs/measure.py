"""What a model really costs: its forward and backward pass run on tensors without data.

Every operator is seen, none is computed, so the multiply-adds and bytes are those of the code that runs, folded
projections, chunks and fused kernels included, for models far larger than this machine.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from motionformer.models.config import ModelConfig
from motionformer.models.motionformer import Motionformer


@dataclass(frozen=True)
class Cost:
    """Multiply-adds (LayerNorm 5 an element, as in the paper) and bytes of float32, for one batch."""

    parameters: int
    macs: float
    weight_bytes: int
    inference_bytes: int
    training_bytes: int

    @property
    def training_total_bytes(self) -> int:
        """Weights, two moments of AdamW, and the peak of a step (activations and gradients)."""
        return 3 * self.weight_bytes + self.training_bytes


def measure(config: ModelConfig, batch: int = 1) -> Cost:
    """Count operators and live bytes of one forward pass, and of one training step, in float32 on a CPU."""
    with torch.device("meta"):
        model = Motionformer(config)
    spec = config.input
    with FakeTensorMode():
        _without_data(model)
        clip = torch.empty(batch, 3, spec.frames, spec.height, spec.width)
        model.eval()
        with torch.no_grad(), _counter() as counted, _NormMacs(model) as norms, _PeakBytes() as inference:
            model(clip)
        model.train()
        with _PeakBytes() as training:
            loss: Any = sum(leaf.sum() for leaf in tree_leaves(model(clip)))
            loss.backward()
        parameters = sum(p.numel() for p in model.parameters())
        stored = sum(t.numel() for t in (*model.parameters(), *model.buffers()))
    return Cost(parameters, counted.get_total_flops() / 2 + norms.macs, 4 * stored, inference.peak, training.peak)


def _without_data(model: nn.Module) -> None:
    """Replace every weight by one of the same shape that lives, in name, on the CPU."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(torch.empty(weight.shape))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape)


class _PeakBytes(TorchDispatchMode):
    """The largest number of bytes alive at once among tensors made inside the block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        inputs = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._note(leaf, inputs)
        return out

    def _note(self, tensor: Tensor, inputs: set[int]) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in inputs or key in self._seen:
            return
        size = storage.nbytes()
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size


def _counter() -> FlopCounterMode:
    def fused(q: Any, k: Any, v: Any, *rest: Any, out_shape: Any = None, **options: Any) -> int:
        return int(sdpa_flop_count(q, k, v))

    def search(unit: Any, num: int, *rest: Any, out_shape: Any = None, **options: Any) -> int:
        rows, candidates, d = unit
        return int(2 * rows * candidates * num * d)  # one opaque operator: every candidate with every prototype

    mapping = {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused,
        torch.ops.motionformer.greedy_orthogonal: search,
    }
    return FlopCounterMode(display=False, custom_mapping=mapping)


class _NormMacs:
    """Counts 5 for each element that a LayerNorm of the model gives inside the block."""

    def __init__(self, model: nn.Module) -> None:
        self.macs = 0
        self.norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]

    def __enter__(self) -> "_NormMacs":
        self.handles = [norm.register_forward_hook(self._count) for norm in self.norms]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _count(self, norm: nn.Module, inputs: Any, out: Tensor) -> None:
        self.macs += 5 * out.numel()
