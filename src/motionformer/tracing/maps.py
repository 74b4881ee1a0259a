"""What can be shown of a model and a clip: attention → maps. A kind is a function, and `KINDS` has all of them.

Each is given the model and a `Question` (the clip as the model takes it, the query token or None, which layers, heads
and class), and returns the maps to show. Tokens are counted as the model does, prefix tokens first. A layer is a list
of *steps*, each with a residual of its own: `[h n n]`, row = query, column = key (`AttentionScheme.attention_map`).
Rows sum to one if the kernel is a softmax. The maps of one layer of the base model are 118 MB; those of a layer are
released before the next is computed.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor, nn

from motionformer.attention import SCHEMES, AttentionKernel, AttentionScheme, LayerRecord, record_attention
from motionformer.errors import TraceError
from motionformer.models import AttentionAdapter, ModelConfig, Motionformer
from motionformer.models.adapter import adapted_blocks, adapter_width

Which = int | str
"""A layer, head or class, by number or by name (`last`, `all`, `mean`; the name of a class)."""


@dataclass(frozen=True)
class Question:
    """What is asked of a model and a clip."""

    clip: Float[Tensor, "1 3 t H W"]
    token: int | None
    """The query token, prefix tokens counted; None without a point."""
    layer: Which = "last"
    head: Which = "mean"
    label: Which | None = None


@dataclass(frozen=True)
class SpaceTimeMap:
    """The attention of one token: a distribution over the patches of each frame, and over frames."""

    space: Float64[Tensor, "f s"]
    """The map of each frame; it sums to one."""
    mass: Float64[Tensor, " f"]
    """The share of each frame; all together one."""
    prefix: float
    """The share of prefix tokens in the whole row."""

    @property
    def weights(self) -> Float64[Tensor, "f s"]:
        """The shares of all patches of the clip."""
        return self.mass[:, None] * self.space


Shown = tuple[str, str, SpaceTimeMap]
"""The names of a layer and a head, and the map to show."""


@dataclass(frozen=True)
class _Kind:
    """One way of looking at a model."""

    look: Callable[[Motionformer, Question], tuple[list[Shown], str | None]]
    """The maps, and the name of the class that they explain, if any."""
    per_frame: bool
    """Whether the map of each frame is drawn to its own scale."""
    takes_point: bool = False
    needs_point: bool = False
    takes_label: bool = False


def _attention_of_point(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    assert question.token is not None
    by_frame = SCHEMES[model.config.attention].prefix_per_frame
    if by_frame and not _choose_attention(question.layer, model.config).num_heads:
        raise TraceError(
            f"attention {model.config.attention!r} never looks into another frame, so that a point has no path. Ask for"
            " what='class-token', 'rollout' or 'gradcam' (--what)."
        )
    return _attention(model, question, [question.token]), None


def _attention_of_class_token(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    _check_class_token(model)
    return _attention(model, question, _class_tokens(model, question)), None


def _rollout(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    """Of the query token, or of the class token without a query."""
    if question.token is None:
        _check_class_token(model)
    if question.head != "mean" or question.layer == "mean":
        raise TraceError(
            "rollout multiplies layers of averaged heads: it takes --head mean, and --layer last, all or a number."
        )
    layers = _choose_layers(question.layer, model.config.depth)
    tokens = _class_tokens(model, question) if question.token is None else [question.token]
    rows = _rollout_rows(model, question.clip, tokens, layers.numbers)
    named = zip(layers.names, rows, strict=True)
    return [(name, "mean", _split(model, question, row)) for name, row in named], None


def _class_evidence(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    """Grad-CAM of a class."""
    if question.head != "mean":
        raise TraceError("Grad-CAM is computed from tokens, which have no heads: leave --head out.")
    layers = _choose_layers(question.layer, model.config.depth)
    label = _find_label(model, question.clip, question.label)
    rows = torch.stack([_grad_cam(model, question.clip, number, label) for number in layers.numbers])
    name = _label_name(model.config, label)
    if not (rows > 0).any(dim=1).all():
        raise TraceError(f"no token of the layer is evidence for the class {name}: choose another layer or label.")
    picked = zip(layers.names, layers.pick(rows), strict=True)
    return [(layer, "", _split(model, question, row, prefix=0)) for layer, row in picked], name


KINDS: dict[str, _Kind] = {
    "trajectory": _Kind(_attention_of_point, per_frame=True, takes_point=True, needs_point=True),
    "class-token": _Kind(_attention_of_class_token, per_frame=False),
    "rollout": _Kind(_rollout, per_frame=False, takes_point=True),
    "gradcam": _Kind(_class_evidence, per_frame=False, takes_label=True),
}


def _class_tokens(model: Motionformer, question: Question) -> Sequence[int]:
    """The class token, or that of each frame, whose mean is shown."""
    p = model.config.num_prefix_tokens
    if not SCHEMES[model.config.attention].prefix_per_frame:
        return [0]
    return range(0, p, p // model.tokens.grid(question.clip)[0])


def _attention(model: Motionformer, question: Question, tokens: Sequence[int]) -> list[Shown]:
    """Of one token, or the mean of several."""
    layers = _choose_attention(question.layer, model.config)
    heads = _choose_heads(question.head, layers.num_heads or model.config.num_heads)
    rows = []
    for _, layer in walk_layers(model, question.clip, layers.numbers):
        of_token = layer.adapter_row if layers.num_heads else layer.row
        rows.append(torch.stack([of_token(token) for token in tokens]).mean(dim=0))
    picked = _pick_all(torch.stack(rows), layers, heads)
    return [(layer, head, _split(model, question, row)) for layer, head, row in picked]


def _split(model: Motionformer, question: Question, row: Tensor, prefix: int | None = None) -> SpaceTimeMap:
    frames = model.tokens.grid(question.clip)[0]
    return split_row(row, frames, model.config.num_prefix_tokens if prefix is None else prefix)


def _check_class_token(model: Motionformer) -> None:
    if model.config.num_prefix_tokens == 0:
        raise TraceError("the model has no class token: ask about a point of a frame.")


# Which layers and heads


@dataclass(frozen=True)
class _Choice:
    """Some of the layers, or of the heads: shown one by one, or as their mean."""

    numbers: tuple[int, ...]
    is_mean: bool
    num_heads: int = 0
    """Of the adapters, where it is a choice of those behind the blocks."""

    @property
    def names(self) -> tuple[str, ...]:
        if self.is_mean:
            return ("mean",)
        return tuple(f"adapter:{number}" if self.num_heads else str(number) for number in self.numbers)

    def pick(self, rows: Float[Tensor, "k ..."]) -> list[Float[Tensor, "..."]]:
        """What is shown of the rows of `numbers`."""
        return [rows.mean(dim=0)] if self.is_mean else list(rows)


def _choose_attention(which: Which, config: ModelConfig) -> _Choice:
    """Blocks, or `adapter` (the last one) and `adapter:N` (that behind block N)."""
    what, _, number = str(which).partition(":")
    if what != "adapter":
        return _choose_layers(which, config.depth)
    there = adapted_blocks(config)
    if not there:
        raise TraceError(f"layer {which}: the model has no adapters; `finetune --train adapter` makes one that has.")
    if number not in ("", *map(str, there)):
        known = ", ".join(f"adapter:{block}" for block in there)
        raise TraceError(f"layer {which}: there is no adapter behind block {number!r}; there are {known}.")
    return _Choice((int(number) if number else there[-1],), False, adapter_width(config)[1])


def _choose_layers(which: Which, depth: int) -> _Choice:
    return _Choice((depth - 1,), False) if which == "last" else _choose(which, depth, "layer", "last, all, mean")


def _choose_heads(which: Which, num_heads: int) -> _Choice:
    return _choose(which, num_heads, "head", "all, mean")


def _choose(which: Which, count: int, noun: str, words: str) -> _Choice:
    if which in ("all", "mean"):
        return _Choice(tuple(range(count)), which == "mean")
    try:
        number = int(which)
    except ValueError:
        raise TraceError(f"{noun} must be {words} or a number; not {which!r}.") from None
    if not 0 <= number < count:
        raise TraceError(f"there is no {noun} {number}: the model has {count}, counted from 0 to {count - 1}.")
    return _Choice((number,), False)


def _pick_all(rows: Float[Tensor, "l h ..."], layers: _Choice, heads: _Choice) -> list[tuple[str, str, Tensor]]:
    """Name of the layer, name of the head, and the row, of everything that is shown; `rows` has all heads."""
    shown = []
    for layer, of_layer in zip(layers.names, layers.pick(rows), strict=True):
        picked = heads.pick(of_layer[torch.tensor(heads.numbers)])
        shown += [(layer, head, row) for head, row in zip(heads.names, picked, strict=True)]
    return shown


# Grad-CAM


@dataclass(frozen=True)
class _Label:
    """A class of one of the model's classifiers; `task` is None if there is only one."""

    task: str | None
    index: int


def _grad_cam(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], layer: int, label: _Label
) -> Float[Tensor, " patches"]:
    """Grad-CAM on space-time tokens (Selvaraju et al., 2017): ReLU of the tokens entering `layer`, weighted by the mean
    gradient of the label's logit for each channel.

    *Entering*: the classifier reads the class token only, so patch tokens that leave the last block have no gradient.
    """
    grid, p = model.tokens.grid(clip), model.config.num_prefix_tokens
    with torch.no_grad():
        x = model.embed(clip)
        for block in model.blocks[:layer]:
            x = block(x, grid[0])
    with torch.enable_grad():
        tokens = x.detach().requires_grad_()
        y = tokens
        for block in model.blocks[layer:]:
            y = block(y, grid[0])
        y = model.norm(y)
        logit = _logits(model.head(model.readout(y, grid)), label.task)[0, label.index]
        (gradient,) = torch.autograd.grad(logit, tokens)
    channels = gradient[0, p:].mean(dim=0)
    cam: Tensor = (tokens.detach()[0, p:] @ channels).relu()
    return cam


def _find_label(model: Motionformer, clip: Float[Tensor, "1 3 t H W"], wanted: Which | None) -> _Label:
    """The class given by number or name (`verb:3` with several classifiers) [default: the predicted one]."""
    counts = model.config.num_classes
    if counts == 0:
        raise TraceError("the model has no classes, so there is nothing to explain: load it with a classifier.")
    if wanted is None:
        with torch.no_grad():
            logits = model(clip)
        task = next(iter(logits)) if isinstance(logits, dict) else None
        return _Label(task, int(_logits(logits, task)[0].argmax()))
    if isinstance(counts, dict):
        task, _, rest = str(wanted).partition(":")
        if task not in counts or not rest:
            known = " or ".join(f"{task}:0 … {task}:{count - 1}" for task, count in counts.items())
            raise TraceError(f"label {wanted!r}: the model has classes of {', '.join(counts)}; write {known}.")
        return _Label(task, _class_index(rest, counts[task], None))
    return _Label(None, _class_index(wanted, counts, model.config.labels))


def _label_name(config: ModelConfig, label: _Label) -> str:
    if label.task is not None:
        return f"{label.task}:{label.index}"
    return str(label.index) if config.labels is None else config.labels[label.index]


def _class_index(wanted: Which, count: int, names: tuple[str, ...] | None) -> int:
    if names is not None and wanted in names:
        return names.index(str(wanted))
    try:
        index = int(wanted)
    except ValueError:
        known = "it has no names of classes" if names is None else f"it has {', '.join(names[:20])}"
        raise TraceError(f"the model has no class {wanted!r}: {known}; give a number from 0 to {count - 1}.") from None
    if not 0 <= index < count:
        raise TraceError(f"there is no class {index}: the model has {count}, counted from 0 to {count - 1}.")
    return index


def _logits(out: Tensor | dict[str, Tensor], task: str | None) -> Tensor:
    return out[task] if isinstance(out, dict) and task is not None else out  # type: ignore[return-value]


def split_row(row: Float[Tensor, " n"], frames: int, num_prefix_tokens: int) -> SpaceTimeMap:
    """The map of a token whose weights over all tokens, prefix tokens first, are `row`.

    Approximations of the softmax can give slightly negative weights; they count as zero.
    """
    row = row.detach().to("cpu", torch.float64).clamp(min=0.0)  # float64: a frame's share may be far below float32's
    prefix, patches = row[:num_prefix_tokens], row[num_prefix_tokens:]
    weights = rearrange(patches, "(f s) -> f s", f=frames)
    by_frame, total = weights.sum(dim=1), patches.sum()
    if not total > 0:
        raise TraceError("nothing to show: the weights of all patches are zero.")
    uniform = torch.full_like(weights, 1 / weights.shape[1])  # of a frame that gets nothing, nothing is known
    space = torch.where(by_frame[:, None] > 0, weights / by_frame[:, None], uniform)
    return SpaceTimeMap(space, by_frame / total, float(prefix.sum() / row.sum()))


@dataclass(frozen=True)
class _LayerAttention:
    """What one layer of one clip mixed into each token."""

    steps: list[Float[Tensor, "h n n"]]
    """The weights of each step, in order."""
    adapter: Float[Tensor, "k n n"] | None = None
    """Of the adapter behind it."""
    gate: float = 0.0
    """Mean size of the gate that lets the adapter through."""

    def adapter_row(self, token: int) -> Float[Tensor, "k n"]:
        """The weights of `token` in the adapter."""
        assert self.adapter is not None, "chosen among the blocks that have one"
        return self.adapter[:, token]

    def row(self, token: int) -> Float[Tensor, "h n"]:
        """The weights of `token` over all tokens, all steps composed.

        The heads of two steps are unrelated. A head of the whole is a head of the last step; earlier steps enter with
        the mean of their heads.
        """
        row = self.steps[-1][:, token]
        for earlier in reversed(self.steps[:-1]):
            row = row @ earlier.mean(dim=0)
        return row


def walk_layers(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], wanted: Collection[int]
) -> Iterator[tuple[int, _LayerAttention]]:
    """The wanted layers by number, as the clip passes them; what follows the last one is not computed."""
    frames = model.tokens.grid(clip)[0]
    if not SCHEMES[model.config.attention].has_map():
        with_maps = ", ".join(name for name in SCHEMES.names() if SCHEMES[name].has_map())
        raise TraceError(
            f"attention {model.config.attention!r} defines no maps; {with_maps} attention does. "
            "Grad-CAM (what='gradcam', --what gradcam) needs none."
        )
    with torch.no_grad():
        x = model.embed(clip)
    for number, block in enumerate(model.blocks[: max(wanted, default=-1) + 1]):
        # entered anew for each block: a generator that pauses inside would leave gradients off for its caller
        with torch.no_grad():
            if number in wanted:
                x, records = _run_recorded(block, x, frames)
            else:
                x = block(x, frames)
        if number in wanted:
            layers = [(name, layer) for name, layer in block.named_children() if isinstance(layer, AttentionScheme)]
            steps = [layer.attention_map(records[name]) for name, layer in layers]
            adapter = getattr(block, "adapter", None)
            if not isinstance(adapter, AttentionAdapter):
                yield number, _LayerAttention(steps)
            else:
                added = adapter.attn.attention_map(records["adapter.attn"])
                yield number, _LayerAttention(steps, added, float(adapter.gate.detach().abs().mean()))


def _run_recorded(
    block: nn.Module, x: Float[Tensor, "b n c"], frames: int
) -> tuple[Float[Tensor, "b n c"], dict[str, LayerRecord]]:
    if not any(isinstance(part, AttentionKernel) for part in block.modules()):
        raise TraceError(f"the model has no attention to show: {type(block).__name__} holds none.")
    with record_attention(block) as records:
        return block(x, frames), records


def _rollout_rows(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], tokens: Sequence[int], upto: Collection[int]
) -> list[Float[Tensor, " n"]]:
    """Attention rollout (Abnar & Zuidema, 2020): the share of each input token in `tokens`, their mean, after layer i,
    for every i in `upto`, ascending.

    Every step of every layer is `(1 + A) / 2`, the mean of its heads beside the residual, and steps are multiplied.
    Correct for every scheme because a layer states its steps: trajectory attention has one (time × space, summed over
    frames), divided attention two with a residual each. An adapter is one more step, whose attention counts by the mean
    size g of its gate: `(1 + g A) / (1 + g)`.
    """
    reached: Tensor | None = None
    rows = []
    for number, layer in walk_layers(model, clip, range(max(upto) + 1)):
        for weights in layer.steps:
            step = _with_residual(weights.mean(dim=0))
            reached = step if reached is None else step @ reached
        if layer.adapter is not None:
            assert reached is not None
            reached = _with_residual(layer.adapter.mean(dim=0), layer.gate) @ reached
        if number in upto:
            assert reached is not None
            rows.append(reached[list(tokens)].mean(dim=0))
    return rows


def _with_residual(weights: Float[Tensor, "n n"], gate: float = 1.0) -> Float[Tensor, "n n"]:
    """Half attention, half the token itself; with another gate, as much attention as it lets through.

    Rows of approximate attention are first normalised to one, without their negative weights.
    """
    positive = weights.clamp(min=0.0)
    positive = positive / positive.sum(dim=1, keepdim=True)
    return (gate * positive + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)) / (1 + gate)
