"""What one layer mixed into each token, as token-to-token weights: one class for each of the three schemes.

Tokens are counted as the model does, prefix tokens first. A scheme is a list of *steps*, each with a residual of its
own: `[h n n]`, row = who asks, column = whom it takes from. Rows sum to one where the attend is a softmax.

Trajectory attention is one step, `Σ_f time[n, f] · space[n, f, s]`: the weight that the value of patch s of frame f has
in the output of query n, in every head. It is the whole truth for layers without a value projection along time (the
released ones); with one, heads are mixed once more before the output, as they are by every output projection.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from motionformer.attention import LayerRecord


class LayerAttention(ABC):
    """One recorded layer of one clip."""

    @abstractmethod
    def row(self, token: int) -> Float[Tensor, "h n"]:
        """What `token` takes from every token, all steps composed."""

    @abstractmethod
    def steps(self) -> list[Float[Tensor, "h n n"]]:
        """The weights of each step, in the order in which they happen."""


class TrajectoryLayer(LayerAttention):
    """Space in each frame, then time along the trajectory. Patch tokens take nothing from prefix tokens."""

    def __init__(self, records: Mapping[str, LayerRecord], num_prefix_tokens: int) -> None:
        record = records["attn"]
        self.space, self.time, self.prefix, self.p = record.space[0], record.time, record.prefix, num_prefix_tokens

    def row(self, token: int) -> Float[Tensor, "h n"]:
        if token < self.p:
            return _present(self.prefix)[0, :, token, 0]
        return _behind_prefix(self._patches(slice(token - self.p, token - self.p + 1)), self.p)[:, 0]

    def steps(self) -> list[Float[Tensor, "h n n"]]:
        patches = _behind_prefix(self._patches(slice(None)), self.p)
        if self.p == 0:
            return [patches]
        return [torch.cat((_present(self.prefix)[0, :, :, 0], patches), dim=1)]

    def _patches(self, which: slice) -> Float[Tensor, "h q m"]:
        weights = _present(self.time)[0, :, which, :, None] * self.space[:, which]
        return rearrange(weights, "h q f s -> h q (f s)")


class JointLayer(LayerAttention):
    """One softmax over all tokens."""

    def __init__(self, records: Mapping[str, LayerRecord], num_prefix_tokens: int) -> None:
        self.weights = rearrange(records["attn"].space, "1 h n 1 m -> h n m")

    def row(self, token: int) -> Float[Tensor, "h n"]:
        return self.weights[:, token]

    def steps(self) -> list[Float[Tensor, "h n n"]]:
        return [self.weights]


class DividedLayer(LayerAttention):
    """Time at one place, then space in one frame: what a token takes is space ∘ time, through prefix tokens too.

    The heads of the two steps have nothing to do with each other. A head of the whole is a head of the space step;
    the time step enters with the mean of its heads.
    """

    def __init__(self, records: Mapping[str, LayerRecord], num_prefix_tokens: int) -> None:
        time, space, p = records["time_attn"], records["attn"], num_prefix_tokens
        self.time = _with_prefix(*_time_step(time.space, p), time.prefix)
        self.space = _with_prefix(*_space_step(space.space, p), space.prefix)

    def row(self, token: int) -> Float[Tensor, "h n"]:
        return self.space[:, token] @ self.time.mean(dim=0)

    def steps(self) -> list[Float[Tensor, "h n n"]]:
        return [self.time, self.space]


SCHEMES: dict[str, type[TrajectoryLayer] | type[JointLayer] | type[DividedLayer]] = {
    "trajectory": TrajectoryLayer,
    "joint": JointLayer,
    "divided": DividedLayer,
}


Parts = tuple[Float[Tensor, "h patches patches"], Float[Tensor, "h patches prefix"]]
"""What patch tokens take from patch tokens, and from prefix tokens."""


def _time_step(groups: Float[Tensor, "s h f 1 keys"], p: int) -> Parts:
    """Each group is a place: its weights go where both tokens lie at that place."""
    s, h, f = groups.shape[:3]
    place = torch.arange(s)
    patches = groups.new_zeros(h, f, s, f, s)
    patches[:, :, place, :, place] = groups[:, :, :, 0, p:]
    to_prefix = rearrange(groups[:, :, :, 0, :p], "s h f p -> h (f s) p")
    return rearrange(patches, "h f s f2 s2 -> h (f s) (f2 s2)"), to_prefix


def _space_step(groups: Float[Tensor, "f h s 1 keys"], p: int) -> Parts:
    """Each group is a frame: its weights go where both tokens lie in that frame."""
    f, h, s = groups.shape[:3]
    frame = torch.arange(f)
    patches = groups.new_zeros(h, f, s, f, s)
    patches[:, frame, :, frame] = groups[:, :, :, 0, p:]
    to_prefix = rearrange(groups[:, :, :, 0, :p], "f h s p -> h (f s) p")
    return rearrange(patches, "h f s f2 s2 -> h (f s) (f2 s2)"), to_prefix


def _with_prefix(patches: Tensor, to_prefix: Tensor, prefix: Tensor | None) -> Float[Tensor, "h n n"]:
    """The whole matrix: rows of prefix tokens on top, columns of prefix tokens to the left."""
    below = torch.cat((to_prefix, patches), dim=2)
    return below if prefix is None else torch.cat((prefix[0, :, :, 0], below), dim=1)


def _behind_prefix(weights: Float[Tensor, "h q m"], p: int) -> Float[Tensor, "h q n"]:
    """Patch tokens that take nothing from `p` prefix tokens."""
    return torch.nn.functional.pad(weights, (p, 0))


def _present(weights: Tensor | None) -> Tensor:
    assert weights is not None, "the layer was not recorded whole"
    return weights
