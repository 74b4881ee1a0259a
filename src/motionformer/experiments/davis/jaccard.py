"""J, the region measure: how much of two masks is common to both (DAVIS; Perazzi et al., 2016)."""

from jaxtyping import Bool
from torch import Tensor


def jaccard(predicted: Bool[Tensor, "H W"], truth: Bool[Tensor, "H W"]) -> float:
    """Intersection over union; 1 where both masks are empty."""
    union = int((predicted | truth).sum())
    return int((predicted & truth).sum()) / union if union else 1.0
