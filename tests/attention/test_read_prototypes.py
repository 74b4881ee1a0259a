"""Looking up prototypes: a plain loop gives the same, and where the kernel does it no n × r weights are kept."""

import pytest
import torch
from torch import Tensor

from motionformer.attention.orthoformer import read_prototypes

B, H, N, R, D = 2, 3, 10, 4, 6


def literal(q: Tensor, prototypes: Tensor, values: Tensor, penalty: Tensor | None) -> Tensor:
    """Query by query, frame by frame."""
    frames, groups = values.shape[2], prototypes.shape[2]
    out = torch.empty(*q.shape[:3], frames, values.shape[-1], dtype=q.dtype)
    for b, h, n, f in ((b, h, n, f) for b in range(B) for h in range(H) for n in range(N) for f in range(frames)):
        group = f if groups > 1 else 0
        logits = prototypes[b, h, group] @ q[b, h, n] * D**-0.25
        logits = logits if penalty is None else logits - penalty[b, h, group]
        out[b, h, n, f] = logits.softmax(dim=0) @ values[b, h, f]
    return out


@pytest.mark.parametrize("is_penalised", [False, True])
@pytest.mark.parametrize(("groups", "frames"), [(1, 1), (1, 5), (5, 5)])
def test_it_equals_the_loop(groups: int, frames: int, is_penalised: bool) -> None:
    q = torch.randn(B, H, N, D, dtype=torch.float64)
    prototypes = torch.randn(B, H, groups, R, D, dtype=torch.float64)
    values = torch.randn(B, H, frames, R, D, dtype=torch.float64)
    penalty = torch.rand(B, H, groups, R, dtype=torch.float64) if is_penalised else None
    found = read_prototypes(prototypes, values, penalty=penalty)(q)
    torch.testing.assert_close(found, literal(q, prototypes, values, penalty))


@pytest.mark.parametrize(("groups", "frames", "is_kept"), [(1, 1, False), (3, 3, False), (1, 3, True)])
def test_weights_are_kept_only_where_frames_share_them(groups: int, frames: int, is_kept: bool) -> None:
    n, r = 512, 128  # n × r is larger than all else together
    q = torch.randn(1, 1, n, 16, requires_grad=True)
    values = torch.randn(1, 1, frames, r, 16, requires_grad=True)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        read_prototypes(torch.randn(1, 1, groups, r, 16), values)(q)
    assert (max(kept.values()) >= n * r) == is_kept


def test_dropout_drops_weights() -> None:
    q, values = torch.randn(B, H, N, D), torch.ones(B, H, 1, R, D)
    for frames in (1, 2):
        found = read_prototypes(torch.randn(B, H, 1, R, D), values.expand(-1, -1, frames, -1, -1), dropout=0.5)(q)
        assert not torch.allclose(found, torch.ones(()))
