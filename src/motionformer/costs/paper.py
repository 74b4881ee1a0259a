"""The paper's way to count: multiply-adds of its equations done literally, one view (method.md §5).

LayerNorm counts 5 an element; softmax, GELU and additions count nothing. The published figures come from a counter
that reports an `einsum` to four digits, which shows in the last digit of one of them, so it is done here too
(docs/decisions.md, "counting as the paper does").
"""

from motionformer.models.build import READOUTS
from motionformer.models.config import AttendConfig, ModelConfig


def paper_macs(config: ModelConfig) -> float:
    """Multiply-adds of one clip through the model as the paper writes it, every projection of every token done."""
    f, rows, columns = config.grid
    s, c = rows * columns, config.dim
    n = f * s
    tokens = n + config.num_prefix_tokens
    embed = n * 3 * config.tubelet * config.patch**2 * c
    mlp = 2 * tokens * c * int(config.mlp_ratio * c)
    attention, norms = _attention(config, f, s)
    block = attention + mlp + (norms + 1) * _norm(tokens, c)
    return embed + config.depth * block + _norm(tokens, c) + _head(config)


def released_parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters that the authors' code has for this model and ours does not, by reason."""
    c = config.dim
    extra: dict[str, int] = {}
    if config.tubelet > 1:
        extra["the 2-D tokeniser, which is never used"] = 3 * config.patch**2 * c + c
    if config.positions == "joint":
        extra["the spatial position table beside the joint one"] = (config.grid[1] * config.grid[2] + 1) * c
    if config.attention == "trajectory" and config.time == "attention":
        extra["the temporal key bias, which cancels in the softmax"] = config.depth * c
        if not config.project_values:
            extra["the temporal value projection, which is never used"] = config.depth * (c * c + c)
    return extra


def _attention(config: ModelConfig, f: int, s: int) -> tuple[float, int]:
    """Multiply-adds of a block's attention, and how many norms stand before attentions."""
    c, n, p = config.dim, f * s, config.num_prefix_tokens
    tokens = n + p
    project = 4 * tokens * c * c
    prefix = 2 * p * tokens * c
    if config.attention == "joint":
        return project + _softmax_attention(config, tokens, tokens, 1), 1
    if config.attention == "divided":
        along_time = s * _softmax_attention(config, f, f + p, 1)
        return 2 * project + 2 * prefix + along_time + f * _softmax_attention(config, s, s + p, 1), 2
    along_time = 0.0
    if config.time == "attention":
        along_time = n * c * c + n * f * c * 2 * c + 2 * _einsum(n * f * c)
    return project + prefix + _softmax_attention(config, n, n, f) + along_time, 1


def _softmax_attention(config: ModelConfig, n: int, m: int, f: int) -> float:
    """n queries, m keys in f frames: logits and pooling, or what the approximation does instead."""
    c, attend = config.dim, config.attend
    if attend.kind in ("exact", "norm_st"):
        return n * m * c + (_einsum(n * m * c) if config.attention == "trajectory" else float(n * m * c))
    if attend.kind == "performer":
        features, read, normalise = (n + m) * c, (m + n * f) * c, n * f * config.num_heads
        return float(attend.num_features * (features + read + normalise))
    if attend.kind == "nystrom":
        r = min(attend.num_prototypes, n, m)
        inverse = r * r * c + config.num_heads * (6 * 4 * r**3) + r * r * f * c
        return float(n * r * c + 2 * r * m * c + inverse + n * r * f * c)
    groups = 1 if attend.shared else f
    r, search = selection(attend, n, m, groups)
    return float(search * c + n * r * groups * c + 2 * r * m * c + n * r * f * c)


def selection(attend: AttendConfig, n: int, m: int, groups: int = 1) -> tuple[int, int]:
    """Prototypes of each group, and the products of a prototype and a candidate that finding all of them takes."""
    candidates = (n + m if attend.candidates == "queries+keys" else n) // groups
    r = min(attend.num_prototypes, candidates)
    if attend.choice != "orthogonal":
        return r, 0
    if attend.subsample is not None:
        candidates = min(candidates, attend.subsample * r)
    return r, groups * candidates * r


def _norm(tokens: int, c: int) -> int:
    return 5 * tokens * c


def _head(config: ModelConfig) -> int:
    classes = sum(config.num_classes.values()) if isinstance(config.num_classes, dict) else config.num_classes
    width = READOUTS[config.readout].width * config.dim
    return width * config.dim + config.dim * classes if config.hidden_head else width * classes


def _einsum(macs: int) -> float:
    """As the counter prints it: twice the multiply-adds, to four digits."""
    return float(f"{2 * macs:.3e}") / 2
