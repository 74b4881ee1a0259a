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
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from motionformer.attention.projection import project_qkv, split_bias
from motionformer.attention.rotary import RotaryPositions, build_rotary
from motionformer.deprecation import warn_deprecated
from motionformer.errors import MotionformerError

Queries: TypeAlias = Float[Tensor, "b h n d"]
Keys: TypeAlias = Float[Tensor, "b h m d"]
Values: TypeAlias = Float[Tensor, "b h m e"]
Bias: TypeAlias = Float[Tensor, "b f s"] | None
"""Added to the logits of each key, frame by frame; −inf hides it."""
KeyMask: TypeAlias = Bool[Tensor, "b m"] | None
KeyBias: TypeAlias = Float[Tensor, "b m"] | None
Mask: TypeAlias = Bool[Tensor, "b n"] | None
"""True for real tokens; padded queries are never used as prototypes."""
Tokens: TypeAlias = Float[Tensor, "b n c"]
Context: TypeAlias = Float[Tensor, "b m c"] | None
Pool: TypeAlias = Callable[[Tensor], Tensor]
"""Queries `[b h n d]` (all of them, or any chunk) → one pooled value per key frame `[b h n f d]`."""
PLUGINS = "MOTIONFORMER_PLUGINS"
"""Environment variable: modules to import, separated by commas, that register schemes and kernels."""


class AttentionKernel(nn.Module, ABC):
    """How softmax attention is computed; an `nn.Module` only for `training`, buffers and devices.

    Subclass it, write `prepare` and `macs`, and register it with `register_kernel`.

    Example:
        ```python
        @register_kernel("sharp")
        class SharpAttention(AttentionKernel):
            def prepare(self, q, k, v, frames, bias=None, query_mask=None):
                keys, values = (rearrange(x, "b h (f s) d -> b h f s d", f=frames) for x in (k, v))

                def pool(q):
                    logits = 2 * torch.einsum("bhnd,bhfsd->bhnfs", q, keys) * q.shape[-1] ** -0.5
                    return torch.einsum("bhnfs,bhfse->bhnfe", logits.softmax(-1), values)

                return pool

            def macs(self, n, m, frames, num_heads, head_dim):
                return 2.0 * n * m * num_heads * head_dim

        create_model("motionformer-tiny", kernel="sharp")
        ```
    """

    options: tuple[str, ...] = ()
    """Names of its own options, given as `kernel.options` in a configuration and passed to the constructor."""

    @classmethod
    def from_config(cls, config: Any) -> "AttentionKernel":
        """The kernel of a `ModelConfig`; by default made of nothing but its own options."""
        return cls(**config.kernel.options)

    @abstractmethod
    def prepare(self, q: Queries, k: Keys, v: Values, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        """Do the work that all queries share.

        Args:
            q: all queries.
            k: keys, in `frames` equal groups.
            v: values of the keys.
            frames: number of key frames.
            bias: added to the logits of each key; −inf hides it. A frame may be hidden throughout: what is pooled from
                it must be finite (see `finite_frames`), and nothing else may depend on it.
            query_mask: True for real queries; padded ones are never used as prototypes.

        Returns:
            A function that answers any chunk of the queries.
        """

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        """Multiply-adds of one clip: n queries, m keys in `frames` frames, no projections.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its multiply-adds: give it a method macs.")

    def maps(self, q: Queries, k: Keys, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        """Answers queries with their weights `[b h n f s]`.

        The result is linear in the values, so one-hot values give the weights. A kernel that is not linear in its
        values overrides it.
        """
        s = k.shape[2] // frames
        one_hot = repeat(torch.eye(s, dtype=k.dtype, device=k.device), "s e -> b h (f s) e", b=1, h=1, f=frames)
        return self.prepare(q, k, one_hot.expand(*k.shape[:2], -1, -1), frames, bias, query_mask)

    def forward(
        self,
        q: Queries,
        k: Keys,
        v: Values,
        frames: int = 1,
        *,
        key_mask: KeyMask = None,
        key_bias: KeyBias = None,
        query_mask: Mask = None,
    ) -> Float[Tensor, "b h n {frames} e"]:
        """One pooled value per query and key frame; zero where a frame has no visible key."""
        bias, visible = split_bias(key_mask, key_bias, frames, q)
        pooled = self.prepare(q, k, v, frames, bias, query_mask)(q)
        if visible is None:
            return pooled
        return pooled * rearrange(visible, "b f -> b 1 1 f 1").to(pooled.dtype)


@dataclass(repr=False)
class LayerRecord:
    """What one attention layer did in its last forward pass, as `record_attention` gives it.

    Lists hold what each call of a kernel answered, chunk by chunk of the queries; the properties join them.

    Example:
        >>> with record_attention(JointAttention(64, num_heads=4)) as records:
        ...     records[""]
        LayerRecord(space=None, prefix=None, time=None)
    """

    space_chunks: list[Tensor] = field(default_factory=list)
    prefix_chunks: list[Tensor] = field(default_factory=list)
    time_chunks: list[Tensor] = field(default_factory=list)

    def __repr__(self) -> str:
        parts = {"space": self.space if self.space_chunks else None, "prefix": self.prefix, "time": self.time}
        shapes = (f"{name}={None if part is None else list(part.shape)}" for name, part in parts.items())
        return f"LayerRecord({', '.join(shapes)})"

    def clear(self, *of_hook: Any) -> None:
        """Forget the previous forward pass; called before each."""
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

    Subclass it, write `forward`, `macs` and `attention_map`, and register it with `register_scheme`. `record_attention`
    records its `kernel`, and its `prefix_kernel` where the prefix tokens have one of their own.

    Args:
        dim: width of the tokens.
        num_heads: heads, each of `dim / num_heads` channels.
        num_prefix_tokens: class token and registers in front of the patch tokens.
        bias: whether the projection to queries, keys and values has a bias.
        dropout: of the attention weights, where no `kernel` is given.
        kernel: the attention kernel [default: exact].
        rotary: rotary positions of queries and keys, for self-attention [default: none].
        attend: deprecated name of `kernel`.

    Example:
        ```python
        @register_scheme("frame")
        class FrameAttention(AttentionScheme):
            def forward(self, x, frames):
                q, k, v = self.project(x, frames)
                ...
        ```
    """

    options: tuple[str, ...] = ()
    """Names of its own options, given as `attention_options` in a configuration and passed to the constructor."""
    prefix_per_frame = False
    """Whether prefix tokens belong to frames, the same number to each, and not to the clip."""

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        num_prefix_tokens: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        kernel: AttentionKernel | None = None,
        rotary: RotaryPositions | None = None,
        attend: AttentionKernel | None = None,
    ) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"`dim` ({dim}) must be divisible by `num_heads` ({num_heads}).")
        if attend is not None:
            warn_deprecated("`attend`", "`kernel`")
            kernel = attend
        self.num_heads = num_heads
        self.num_prefix_tokens = num_prefix_tokens
        self.dropout = dropout
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.kernel = KERNELS["exact"](dropout) if kernel is None else kernel
        self.proj = nn.Linear(dim, dim)
        self.rotary = rotary
        self._register_load_state_dict_pre_hook(_rename_kernel_state)  # type: ignore[no-untyped-call]

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> "AttentionScheme | tuple[AttentionScheme, AttentionScheme]":
        """The layer of a block of a `ModelConfig`, or two layers with a norm and a residual each, in this order.

        `options` are further arguments of the constructor.
        """
        rotary = build_rotary(config)
        if rotary is not None:
            options["rotary"] = rotary
        return cls(
            config.dim,
            config.num_heads,
            num_prefix_tokens=config.num_prefix_tokens,
            bias=config.qkv_bias,
            dropout=config.attention_dropout,
            kernel=options.pop("kernel", None) or build_kernel(config),
            **config.attention_options,
            **options,
        )

    @abstractmethod
    def forward(self, x: Float[Tensor, "b n c"], frames: int) -> Float[Tensor, "b n c"]:
        """Attend from the tokens `x` to themselves; in padded clips, with a `key_mask`, True for real tokens."""

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its multiply-adds: give it a method macs.")

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """How much each token (row) takes from each token (column) of the one clip that was recorded, prefix first.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} states no maps: give it a method attention_map.")

    @classmethod
    def has_map(cls) -> bool:
        """Whether it states what it attends to."""
        return cls.attention_map is not AttentionScheme.attention_map

    def project(
        self, x: Tokens, frames: int, context: Context = None, *, num_prefix_tokens: int | None = None
    ) -> tuple[Queries, Keys, Values]:
        """Queries of `x`, keys and values of `context` or of `x`, head by head, rotary positions applied.

        Raises:
            ValueError: rotary positions with a `context`, whose positions are not known.
        """
        q, k, v = project_qkv(self.qkv, x, context, self.num_heads)
        if self.rotary is None:
            return q, k, v
        if context is not None:
            raise ValueError("rotary positions are for self-attention: there must be no `context`.")
        p = self.num_prefix_tokens if num_prefix_tokens is None else num_prefix_tokens
        return self.rotary(q, frames, p), self.rotary(k, frames, p), v

    def _patches_per_frame(self, x: Float[Tensor, "b n c"], frames: int) -> int:
        """s, or an error that names the three numbers."""
        patches = x.shape[1] - self.num_prefix_tokens
        if frames < 1 or patches < 0 or patches % frames:
            raise ValueError(
                f"{x.shape[1]} tokens, {self.num_prefix_tokens} of them prefix tokens, leave {patches} patch tokens,"
                f" which do not divide into {frames} frames. Tokens are ordered prefix, then frame by frame."
            )
        return patches // frames


class UnknownKindError(MotionformerError, ValueError):
    """A scheme, a kernel or an option of one that is not registered."""


T = TypeVar("T", AttentionKernel, AttentionScheme)


class _Registry(Generic[T]):
    """Classes by the name that a configuration has under `key`."""

    def __init__(self, key: str, base: type[nn.Module]) -> None:
        self.key = key
        self.base = base
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """A class decorator that registers the class under `name`, for models, recipes and commands.

        Args:
            name: what a configuration, a recipe or an option calls it.

        Returns:
            The decorator; it returns the class unchanged.

        Raises:
            ValueError: another class has the name.
            TypeError: the class is not of the kind that is registered here.

        Example:
            ```python
            register_scheme("window")(WindowAttention)
            create_model("motionformer-tiny", attention="window")
            ```
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
            _load_plugins()
        if name not in self._classes:
            raise UnknownKindError(
                f"`{self.key}` must be one of {', '.join(self._classes)}; not {name!r}. One of your own is registered "
                f"when its module is imported: name the module in the environment variable {PLUGINS}."
            )
        return self._classes[name]

    def names(self) -> tuple[str, ...]:
        """All that are registered, in the order in which they were."""
        _load_plugins()
        return tuple(self._classes)


@cache
def _load_plugins() -> None:
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
    kernel: AttentionKernel = KERNELS.build(config.kernel.kind, config, config.kernel.options)
    return kernel


def _rename_kernel_state(state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Weights of 0.1 have the buffers of a scheme's kernel under `attend`."""
    for name in [name for name in state if name.startswith(f"{prefix}attend.")]:
        state[f"{prefix}kernel.{name.removeprefix(f'{prefix}attend.')}"] = state.pop(name)


KERNELS: _Registry[AttentionKernel] = _Registry("kernel.kind", AttentionKernel)
SCHEMES: _Registry[AttentionScheme] = _Registry("attention", AttentionScheme)
register_kernel = KERNELS.register
register_scheme = SCHEMES.register
