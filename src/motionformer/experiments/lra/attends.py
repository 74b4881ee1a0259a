"""Names of the contestants → `attend` objects: `exact`, `performer-256`, `nystrom-128`, `orthoformer-64`, …

The number is r: random features, landmarks or prototypes.
"""

import re
from collections.abc import Callable

from motionformer.attention import (
    Attend,
    ExactAttention,
    NystromAttention,
    OrthoformerAttention,
    PerformerAttention,
    SpaceTimeNormAttention,
)

COMPARED = ("exact", "performer-256", "nystrom-128", "orthoformer-64", "orthoformer-64-improved")
"""The rows of the comparison; `-improved` is our addition."""

KINDS: dict[str, Callable[[int, int], Attend]] = {
    "performer-#": lambda r, d: PerformerAttention(d, r),
    "nystrom-#": lambda r, d: NystromAttention(r),
    "orthoformer-#": lambda r, d: OrthoformerAttention(r),
    "orthoformer-#-improved": lambda r, d: OrthoformerAttention.improved(r),
    "orthoformer-#-random": lambda r, d: OrthoformerAttention(r, choice="random"),
    "orthoformer-#-segments": lambda r, d: OrthoformerAttention(r, choice="segments"),
}


def make_attend(name: str, head_dim: int) -> Attend:
    """A fresh `attend` for heads of this width.

    `exact-stored` is exact attention that keeps the n × n matrix: the same function without the fused kernel, for cost
    comparisons. The Performer draws its features from PyTorch's global generator, which a run seeds.
    """
    if name == "exact":
        return ExactAttention()
    if name == "exact-stored":
        return SpaceTimeNormAttention()
    number = re.search(r"[1-9][0-9]*", name)
    kind = name.replace(number[0], "#", 1) if number else name
    if number is None or kind not in KINDS:
        known = ", ".join(("exact", "exact-stored", *KINDS)).replace("#", "R")
        raise ValueError(f"attend is one of {known} with a number for R; not {name!r}.")
    return KINDS[kind](int(number[0]), head_dim)
