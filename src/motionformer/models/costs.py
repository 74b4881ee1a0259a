"""What a model costs: parameters, multiply-adds (the paper's convention and ours), memory.

`measure` runs the forward and backward pass on tensors without data: every operator is seen, none is computed, so the
multiply-adds and bytes are those of the code that runs, folded projections, chunks and fused kernels included, for
models far larger than this machine. `paper_macs` counts the paper's equations done literally, one view (method.md §5).
`training_step_peak` is measured by the operating system, independently.
"""

import json
import os
import subprocess
import sys
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from motionformer.errors import MotionformerError
from motionformer.models.adapter import AttentionAdapter, adapted_blocks
from motionformer.models.block import MLP, StochasticDepth
from motionformer.models.config import ModelConfig
from motionformer.models.head import build_readout
from motionformer.models.motionformer import Motionformer, build_block

PEAK_RESET = Path("/proc/self/clear_refs")
"""Where a process of Linux makes its peak of memory count from now."""
MODEL_STEP = """
import json, sys, torch
from motionformer import ModelConfig, Motionformer
from torch.utils._pytree import tree_leaves
torch.set_num_threads(1)
torch.manual_seed(0)
model = Motionformer(ModelConfig.from_dict(json.loads(sys.argv[1]))).train()
spec = model.config.input
clip = torch.randn(1, 3, spec.frames, spec.height, spec.width)
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)  # gradients are there in any case: what is measured is the rest
def step():
    sum(leaf.square().mean() for leaf in tree_leaves(model(clip))).backward()
"""
_MEASURE = """
def status(key):  # not getrusage, whose peak a process inherits from the one that started it
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
before = status("VmRSS:")
open(sys.argv[-1], "w").write("5")  # the peak counts from here
step()
print(status("VmHWM:") - before)
"""


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


def paper_macs(config: ModelConfig) -> float:
    """Multiply-adds of one clip through the model as the paper writes it, every projection of every token done.

    Each layer states its own (`macs`). LayerNorm counts 5 an element; softmax, GELU and additions count nothing. The
    published numbers come from a counter that reports an `einsum` to four digits, which shows in the last digit of one
    of them, so it is done here too (docs/decisions.md, "counting as the paper does").

    Raises:
        MotionformerError: a layer of the model's blocks, or the kernel inside it, states none.
    """
    f, rows, columns = config.grid
    s, c = rows * columns, config.dim
    n = f * s
    tokens = n + config.num_prefix_tokens
    embed = n * 3 * config.tubelet * config.patch**2 * c
    with torch.device("meta"):
        parts = list(build_block(config, 0.0).children())
        adapters = [AttentionAdapter(config) for _ in adapted_blocks(config)]
    try:
        block = sum(_part(part, f, s, config) for part in parts) + _as_printed(config, n, f)
        added = sum(adapter.macs(f, s, config.num_prefix_tokens) for adapter in adapters)
    except NotImplementedError as error:
        raise MotionformerError(f"the cost of attention {config.attention!r} is not known: {error}") from error
    with torch.device("meta"):
        readout = build_readout(config)
    last = 0 if readout.has_norm else _norm(tokens, c)
    return embed + config.depth * block + added + last + readout.macs(config) + _head(config)


def released_parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters that the authors' code has for this model and ours does not, by reason."""
    c = config.dim
    extra: dict[str, int] = {}
    if config.tubelet > 1:
        extra["the 2-D tokeniser, which is never used"] = 3 * config.patch**2 * c + c
    if config.positions == "joint":
        extra["the spatial position embedding beside the joint one"] = (config.grid[1] * config.grid[2] + 1) * c
    if config.attention == "trajectory" and config.time == "attention":
        extra["the temporal key bias, which cancels in the softmax"] = config.depth * c
        if not config.project_values:
            extra["the temporal value projection, which is never used"] = config.depth * (c * c + c)
    return extra


def training_step_peak(config: ModelConfig) -> int:
    """Bytes of one step of one clip beyond weights and gradients, no dropped paths, one thread.

    Measured in a process of its own (Linux): also sees what kernels allocate inside, which `measure` does not.
    """
    return step_peak(MODEL_STEP, json.dumps(replace(config, drop_path=0.0).to_dict()))


def step_peak(source: str, *words: str) -> int:
    """Bytes that `step()` takes beyond what was there before it; `source` is Python that defines it, given `words`."""
    if not PEAK_RESET.exists():
        raise MotionformerError(
            f"memory is measured on Linux only ({PEAK_RESET} is not here). Multiply-adds need none of it: "
            "`motionformer lra costs --no-memory`, `motionformer reproduce a5`."
        )
    # small blocks go back to the system at once, so that the peak is that of live tensors
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", source + _MEASURE, *words, str(PEAK_RESET)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise MotionformerError(f"the step whose memory was to be measured failed:\n{done.stderr}")
    return int(done.stdout)


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


def _part(part: nn.Module, f: int, s: int, config: ModelConfig) -> float:
    """Multiply-adds of one part of a block."""
    tokens = f * s + config.num_prefix_tokens
    if isinstance(part, nn.LayerNorm):
        return float(_norm(tokens, config.dim))
    if isinstance(part, MLP):
        return 2.0 * tokens * config.dim * part.fc1.out_features
    if isinstance(part, nn.Dropout | StochasticDepth):
        return 0.0
    macs: Any = getattr(part, "macs", None)
    if macs is None:
        raise NotImplementedError(f"{type(part).__name__} does not state its multiply-adds: give it a method macs.")
    return float(macs(f, s, config.num_prefix_tokens))


def _as_printed(config: ModelConfig, n: int, f: int) -> float:
    """What the counter's four digits add to the `einsum`s of trajectory attention: pooling space, then time."""
    if config.attention != "trajectory":
        return 0.0
    space = n * n * config.dim if config.kernel.kind in ("exact", "norm_st") else 0
    time = n * f * config.dim if config.time == "attention" else 0
    return _einsum(space) - space + 2 * (_einsum(time) - time)


def _norm(tokens: int, c: int) -> int:
    return 5 * tokens * c


def _head(config: ModelConfig) -> int:
    classes = sum(config.num_classes.values()) if isinstance(config.num_classes, dict) else config.num_classes
    width = build_readout(config).width(config.dim, config.grid)
    return width * config.dim + config.dim * classes if config.hidden_head else width * classes


def _einsum(macs: int) -> float:
    """As the counter prints it: twice the multiply-adds, to four digits."""
    return float(f"{2 * macs:.3e}") / 2
