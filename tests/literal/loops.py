"""Attention as loops over batch, head, query and frame, in double precision."""

import torch
from torch import Tensor


def loop_attend(q: Tensor, k: Tensor, v: Tensor, frames: int, bias: Tensor | None = None) -> Tensor:
    """One softmax for each query and each key frame; zero where a frame shows no key. `bias` is `[b m]`."""
    b, h, n, d = q.shape
    s = k.shape[2] // frames
    out = torch.zeros(b, h, n, frames, v.shape[-1], dtype=q.dtype)
    for i in range(b):
        for j in range(h):
            for query in range(n):
                for frame in range(frames):
                    logits = []
                    for key in range(frame * s, (frame + 1) * s):
                        extra = 0.0 if bias is None else bias[i, key]
                        logits.append(q[i, j, query] @ k[i, j, key] * d**-0.5 + extra)
                    logits = torch.stack(logits)
                    if not bool((logits == -float("inf")).all()):
                        out[i, j, query, frame] = logits.softmax(0) @ v[i, j, frame * s : (frame + 1) * s]
    return out


def loop_trajectory(module, x: Tensor, frames: int, prefix: int) -> Tensor:  # type: ignore[no-untyped-def]
    """Steps 1–3 of method.md §3 token by token, with the weights of a `TrajectoryAttention`."""
    b, tokens, c = x.shape
    h = module.num_heads
    d = c // h
    q, k, v = (part.unflatten(-1, (h, d)) for part in module.qkv(x).chunk(3, dim=-1))  # [b n h d]
    s = (tokens - prefix) // frames
    out = torch.zeros_like(x)
    for i in range(b):
        for token in range(tokens):
            if token < prefix:
                heads = [(k[i, :, j] @ q[i, token, j] * d**-0.5).softmax(0) @ v[i, :, j] for j in range(h)]
                out[i, token] = torch.cat(heads)
                continue
            trajectory = []
            for frame in range(frames):
                keys = slice(prefix + frame * s, prefix + (frame + 1) * s)
                heads = [(k[i, keys, j] @ q[i, token, j] * d**-0.5).softmax(0) @ v[i, keys, j] for j in range(h)]
                trajectory.append(torch.cat(heads))
            trajectory = torch.stack(trajectory)  # [f c]
            own = (token - prefix) // s
            query = module.time.to_query(trajectory[own])
            key = module.time.to_key(trajectory)
            value = trajectory if module.time.to_value is None else module.time.to_value(trajectory)
            heads = []
            for j in range(h):
                part = slice(j * d, (j + 1) * d)
                weight = (key[:, part] @ query[part] * d**-0.5).softmax(0)
                heads.append(weight @ value[:, part])
            out[i, token] = torch.cat(heads)
    return module.proj(out)
