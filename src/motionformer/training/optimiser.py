"""AdamW and who decays (method.md §6). Biases, norms, the class token and position tables do not unless asked
for the released models' way (`decay_everything`). Layer-wise decay: block i learns slower the further below the head.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from motionformer.models.motionformer import Motionformer
from motionformer.training.recipe import OptimiserPart


def make_optimiser(
    model: Motionformer, part: OptimiserPart, lr: float, new: frozenset[str] = frozenset()
) -> torch.optim.AdamW:
    """AdamW over what learns; `lr` is already scaled to the batch."""
    first, second = part.betas
    return torch.optim.AdamW(parameter_groups(model, part, lr, new), lr=lr, betas=(first, second))


def parameter_groups(
    model: Motionformer, part: OptimiserPart, lr: float, new: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """One group for each learning rate and decay, in the order of the layers.

    Weights that the start did not bring (`new`) learn `new_rate` times as fast, in whatever layer they are.
    """
    groups: dict[tuple[int, bool, bool], dict[str, Any]] = {}
    top = len(model.blocks) + 1
    for name, weight in _learning(model):
        is_new = name in new and part.new_rate != 1.0
        layer = layer_of(name, top) if part.layer_decay < 1 and not is_new else top
        decays = part.decay_everything or decays_by_default(name, weight)
        group = groups.setdefault(
            (layer, decays, is_new),
            {
                "params": [],
                "lr": lr * part.layer_decay ** (top - layer) * (part.new_rate if is_new else 1.0),
                "weight_decay": part.weight_decay if decays else 0.0,
            },
        )
        group["params"].append(weight)
    return [groups[key] for key in sorted(groups)]


def decays_by_default(name: str, weight: nn.Parameter) -> bool:
    """Matrices and kernels decay; vectors, tokens and tables do not."""
    return weight.ndim > 1 and not name.startswith(("prefix", "positions."))


def layer_of(name: str, top: int) -> int:
    """0 for tokens and positions, i + 1 for block i, `top` for the final norm and the head."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return 0 if name.startswith(("tokens.", "prefix", "positions.")) else top


def _learning(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
