"""Trajectory attention as the equations read: the whole n × n softmax, every trajectory token projected."""

import torch
from torch import Tensor, nn

from motionformer import Motionformer, TrajectoryAttention


class LiteralTrajectoryAttention(nn.Module):
    """Takes over the weights of a `TrajectoryAttention`; key and value projection of time are one matrix again.

    Without value projection the trajectory itself is averaged, and the projection is still computed, as the released
    code does.
    """

    def __init__(self, ours: TrajectoryAttention) -> None:
        super().__init__()
        self.num_heads = ours.num_heads
        self.qkv, self.proj, self.proj_q = ours.qkv, ours.proj, ours.time.to_query
        dim = ours.proj.in_features
        self.project_values = ours.time.to_value is not None
        self.proj_kv = nn.Linear(dim, 2 * dim)
        with torch.no_grad():
            self.proj_kv.weight[:dim].copy_(ours.time.to_key.weight)
            self.proj_kv.bias[:dim].zero_()
            if ours.time.to_value is not None:
                self.proj_kv.weight[dim:].copy_(ours.time.to_value.weight)
                self.proj_kv.bias[dim:].copy_(ours.time.to_value.bias)

    def forward(self, x: Tensor, frames: int) -> Tensor:
        b, tokens, c = x.shape
        h, d = self.num_heads, c // self.num_heads
        n = tokens - 1
        s = n // frames
        q, k, v = self.qkv(x).unflatten(-1, (3, h, d)).permute(2, 0, 3, 1, 4)
        q = q * d**-0.5
        first = ((q[:, :, :1] @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2)
        q, k, v = q[:, :, 1:], k[:, :, 1:], v[:, :, 1:]

        space = (q @ k.transpose(-1, -2)).unflatten(-1, (frames, s)).softmax(-1)  # b h n f s
        y = torch.einsum("bhnfs,bhfsd->bhnfd", space, v.unflatten(2, (frames, s)))
        y = y.permute(0, 2, 3, 1, 4).flatten(3)  # b n f c
        own = torch.diagonal(y.unflatten(1, (frames, s)), dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(b, n, c)
        query = self.proj_q(own).unflatten(-1, (h, d)).transpose(1, 2) * d**-0.5
        key, value = self.proj_kv(y).chunk(2, dim=-1)
        value = value if self.project_values else y
        key, value = (part.unflatten(-1, (h, d)).permute(0, 3, 1, 2, 4) for part in (key, value))
        time = torch.einsum("bhnd,bhnfd->bhnf", query, key).softmax(-1)
        out = torch.einsum("bhnf,bhnfd->bhnd", time, value).transpose(1, 2).flatten(2)
        return self.proj(torch.cat((first, out), dim=1))


def literal_model(ours: Motionformer) -> Motionformer:
    """A copy of a trajectory model whose attention layers are literal, same weights."""
    import copy

    model = copy.deepcopy(ours)
    for block in model.blocks:
        block.attn = LiteralTrajectoryAttention(block.attn)
    return model
