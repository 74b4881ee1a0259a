"""The contract between "how softmax attention is computed" and "who attends to whom", and the registries of both.

An *attention kernel* answers `kernel(q, k, v, frames)`: the keys are cut into `frames` equal groups, every query gets
one softmax per group and one pooled value per group (method.md §3, step 1; paper eq. 2). `frames=1` is ordinary
attention. It knows no projections, prefix tokens or blocks: those are an *attention scheme*'s, which is given a kernel.

Both carry their own knowledge: how they are made from a configuration, what they cost, what they attend to. A class
that is registered by name works wherever a name is taken: models, recipes, commands.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from motionformer.attention.projection import check_heads
from motionformer.errors import MotionformerError

Pool = Callable[[Tensor], Tensor]
"""Queries `[b h n d]` (all of them, or any chunk) → one pooled value per key frame `[b h n f d]`."""
PLUGINS = "MOTIONFORMER_PLUGINS"
"""Environment variable: modules to import, separated by commas, that register schemes and kernels."""


class AttentionKernel(nn.Module, ABC):
    """How softmax attention is computed; an `nn.Module` only for `training`, buffers and devices.

    Subclass it, write `prepare` and `macs`, and register it with `register_kernel`.
    """

    options: tuple[str, ...] = ()
    """Names of its own options, given as `attend.options` in a configuration and passed to the constructor."""

    @classmethod
    def from_config(cls, config: Any) -> "AttentionKernel":
        """Made for a `ModelConfig`; here, of nothing but its own options."""
        return cls(**config.attend.options)

    @abstractmethod
    def prepare(
        self,
        q: Float[Tensor, "b h n d"],
        k: Float[Tensor, "b h m d"],
        v: Float[Tensor, "b h m e"],
        frames: int,
        bias: Float[Tensor, "b f s"] | None = None,
        query_mask: Bool[Tensor, "b n"] | None = None,
    ) -> Pool:
        """Do the work that is shared by all queries; the result answers any chunk of them.

        `bias` is added to the logits of each key; −inf hides it, and a frame may be hidden throughout: what is pooled
        from it must be finite (see `finite_frames`), and nothing else may depend on it.
        `query_mask` is True for real queries: padded ones are never used as prototypes.
        """

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        """Multiply-adds of one clip: n queries, m keys in `frames` frames, no projections. A kernel states its own.

        Raises:
            NotImplementedError: this kernel states none. Nothing is guessed.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its multiply-adds: give it a method macs.")

    def maps(
        self,
        q: Float[Tensor, "b h n d"],
        k: Float[Tensor, "b h m d"],
        frames: int,
        bias: Float[Tensor, "b f s"] | None = None,
        query_mask: Bool[Tensor, "b n"] | None = None,
    ) -> Pool:
        """Answers queries with their weights `[b h n f s]`: the result is linear in the values, so give one-hot ones.

        A kernel that is not linear in its values states its own.
        """
        s = k.shape[2] // frames
        one_hot = repeat(torch.eye(s, dtype=k.dtype, device=k.device), "s e -> b h (f s) e", b=1, h=1, f=frames)
        return self.prepare(q, k, one_hot.expand(*k.shape[:2], -1, -1), frames, bias, query_mask)

    def forward(
        self,
        q: Float[Tensor, "b h n d"],
        k: Float[Tensor, "b h m d"],
        v: Float[Tensor, "b h m e"],
        frames: int = 1,
        *,
        key_mask: Bool[Tensor, "b m"] | None = None,
        key_bias: Float[Tensor, "b m"] | None = None,
        query_mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b h n {frames} e"]:
        """One pooled value per query and key frame; zero where a frame has no visible key."""
        bias, visible = split_bias(key_mask, key_bias, frames, q)
        pooled = self.prepare(q, k, v, frames, bias, query_mask)(q)
        if visible is None:
            return pooled
        return pooled * rearrange(visible, "b f -> b 1 1 f 1").to(pooled.dtype)


@dataclass
class LayerRecord:
    """What one attention layer did in its last forward pass.

    Lists hold what each call of a kernel answered, chunk by chunk of the queries; the properties join them.
    """

    space_chunks: list[Tensor] = field(default_factory=list)
    prefix_chunks: list[Tensor] = field(default_factory=list)
    time_chunks: list[Tensor] = field(default_factory=list)

    def clear(self, *of_hook: Any) -> None:
        """Forget the pass before; called when the layer is."""
        for chunks in (self.space_chunks, self.prefix_chunks, self.time_chunks):
            chunks.clear()

    @property
    def space(self) -> Float[Tensor, "b h n f s"]:
        """How much query n takes from patch s of key frame f (divided: b counts groups, the prefix comes first)."""
        if not self.space_chunks:
            raise ValueError("nothing is recorded yet: run the model inside the `with` block first.")
        return torch.cat(self.space_chunks, dim=2)

    @property
    def prefix(self) -> Float[Tensor, "b h p 1 m"] | None:
        """How much prefix token p takes from each of all tokens; None where prefix tokens are not set apart."""
        return torch.cat(self.prefix_chunks, dim=2) if self.prefix_chunks else None

    @property
    def time(self) -> Float[Tensor, "b h n f"] | None:
        """How much query n trusts frame f of its trajectory; None for layers without trajectories."""
        return torch.cat(self.time_chunks, dim=2) if self.time_chunks else None


class AttentionScheme(nn.Module, ABC):
    """Who attends to whom: `[b p + f·s c] -> [b p + f·s c]`, prefix tokens first, then frame by frame.

    Subclass it, write `forward`, `macs` and `attention_map`, and register it with `register_scheme`. What its kernel
    `attend` does is recorded by `record_attention`; the prefix tokens' kernel, if there is one, is `attend_prefix`.

    Args:
        dim: width of the tokens.
        num_heads: heads, each of `dim / num_heads` channels.
        num_prefix_tokens: class token and registers in front of the patch tokens.
        bias: of the projection to queries, keys and values.
        dropout: of the attention weights, where the kernel is left out.
        attend: the attention kernel; exact if left out.
    """

    options: tuple[str, ...] = ()
    """Names of its own options, given as `attention_options` in a configuration and passed to the constructor."""

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        num_prefix_tokens: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        attend: AttentionKernel | None = None,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.num_prefix_tokens = num_prefix_tokens
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.attend = KERNELS["exact"](dropout) if attend is None else attend
        self.proj = nn.Linear(dim, dim)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> "AttentionScheme | tuple[AttentionScheme, AttentionScheme]":
        """The layer of a block of a `ModelConfig`, or two layers with a norm and a residual each, in this order.

        `options` are further arguments of the constructor.
        """
        common = {
            "num_prefix_tokens": config.num_prefix_tokens,
            "bias": config.qkv_bias,
            "dropout": config.attention_dropout,
        }
        if "attend" not in options:
            options["attend"] = build_kernel(config)
        return cls(config.dim, config.num_heads, **common, **config.attention_options, **options)

    @abstractmethod
    def forward(self, x: Float[Tensor, "b n c"], frames: int) -> Float[Tensor, "b n c"]:
        """Attend from the tokens `x` to themselves; in padded clips, with a `key_mask`, True for real tokens."""

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix.

        Raises:
            NotImplementedError: this scheme states none. Nothing is guessed.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its multiply-adds: give it a method macs.")

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """How much each token (row) takes from each token (column) of the one clip that was recorded, prefix first.

        Raises:
            NotImplementedError: this scheme states no maps.
        """
        raise NotImplementedError(f"{type(self).__name__} states no maps: give it a method attention_map.")

    @classmethod
    def has_map(cls) -> bool:
        """Whether it states what it attends to."""
        return cls.attention_map is not AttentionScheme.attention_map


class UnknownKindError(MotionformerError, ValueError):
    """A scheme, a kernel or an option of one that is not registered."""


T = TypeVar("T", AttentionKernel, AttentionScheme)


class Registry(Generic[T]):
    """Classes by the name that a configuration has under `key`."""

    def __init__(self, key: str, base: type[nn.Module]) -> None:
        self.key = key
        self.base = base
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """A class decorator that registers under `name`.

        Raises:
            ValueError: another class has the name.
            TypeError: the class is not of the kind that is registered here.
        """

        def add(cls: type[T]) -> type[T]:
            if not (isinstance(cls, type) and issubclass(cls, self.base)):
                raise TypeError(f"{self.key} {name!r} must be a subclass of {self.base.__name__}, not {cls!r}.")
            there = self._classes.get(name)
            if there is not None and (there.__module__, there.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(f"{self.key} {name!r} is already registered: {there.__module__}.{there.__qualname__}.")
            self._classes[name] = cls
            return cls

        return add

    def build(self, name: str, config: Any, options: Mapping[str, Any]) -> Any:
        """What the class of this name makes of a `ModelConfig` whose options of it are `options`."""
        cls = self[name]
        unknown = sorted(set(options) - set(cls.options))
        if unknown:
            known = f"it has {', '.join(cls.options)}" if cls.options else "it has none"
            raise UnknownKindError(f"{self.key} {name!r} has no option {', '.join(map(repr, unknown))}; {known}.")
        return cls.from_config(config)

    def __getitem__(self, name: str) -> type[T]:
        """The class of this name.

        Raises:
            UnknownKindError: none has it; the names that there are.
        """
        if name not in self._classes:
            load_plugins()
        if name not in self._classes:
            raise UnknownKindError(
                f"{self.key} is one of {', '.join(self._classes)}; not {name!r}. One of your own is known once its "
                f"module is imported: name it in the environment variable {PLUGINS}."
            )
        return self._classes[name]

    def names(self) -> tuple[str, ...]:
        """All that are registered, in the order in which they were."""
        load_plugins()
        return tuple(self._classes)


@cache
def load_plugins() -> None:
    """Import what registers kinds from outside: modules in `MOTIONFORMER_PLUGINS`, entry points `motionformer.plugins`.

    An environment variable reaches the processes that training starts.
    """
    names = os.environ.get(PLUGINS, "").replace(",", " ")
    try:
        for name in names.split():
            import_module(name)
    except ImportError as error:
        raise MotionformerError(f"{PLUGINS} ({names}): {error}.") from error
    for entry in entry_points(group="motionformer.plugins"):
        entry.load()


def build_kernel(config: Any) -> AttentionKernel:
    """The attention kernel of a `ModelConfig`."""
    kernel: AttentionKernel = KERNELS.build(config.attend.kind, config, config.attend.options)
    return kernel


KERNELS: Registry[AttentionKernel] = Registry("attend.kind", AttentionKernel)
SCHEMES: Registry[AttentionScheme] = Registry("attention", AttentionScheme)
register_kernel = KERNELS.register
register_scheme = SCHEMES.register


def split_bias(
    key_mask: Bool[Tensor, "b m"] | None, key_bias: Float[Tensor, "b m"] | None, frames: int, like: Tensor
) -> tuple[Float[Tensor, "b {frames} s"] | None, Bool[Tensor, "b {frames}"] | None]:
    """A mask and a bias over keys as one additive bias per frame, and which frames show any key at all.

    The caller leaves out what was pooled from the others.
    """
    if key_mask is None and key_bias is None:
        return None, None
    bias = like.new_zeros(()) if key_bias is None else key_bias.to(like.dtype)
    if key_mask is not None:
        bias = bias.expand(key_mask.shape).masked_fill(~key_mask, -float("inf"))
    bias = rearrange(bias, "b (f s) -> b f s", f=frames)
    return bias, is_visible(bias).any(dim=-1)


def is_visible(bias: Float[Tensor, "b f s"]) -> Bool[Tensor, "b f s"]:
    """Which keys are not hidden."""
    return bias != -float("inf")


def finite_frames(bias: Float[Tensor, "b f s"]) -> Float[Tensor, "b f s"]:
    """Zero where a frame has no visible key: a softmax over nothing would be no number."""
    return bias.masked_fill(~is_visible(bias).any(dim=-1, keepdim=True), 0.0)
