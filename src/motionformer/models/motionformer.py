"""The whole model: clip → tokens → blocks → readout → logits (method.md §2)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from motionformer.attention import SCHEMES
from motionformer.attention.rotary import build_rotary
from motionformer.deprecation import warn_deprecated
from motionformer.errors import ClipSizeError
from motionformer.models.adapter import AttentionAdapter, adapted_blocks, describe_adapters
from motionformer.models.block import Block, DividedBlock
from motionformer.models.config import ModelConfig
from motionformer.models.head import build_head, build_readout
from motionformer.models.hub import describe_for_hub, remove_hub_files, write_hub_files
from motionformer.models.tokens import POSITIONS, Grid, Positions, Tokens
from motionformer.models.training_data import TRAINING_DATA, TrainingData
from motionformer.runs import make_folder

_CARD_HEAD = """---
library_name: motionformer
pipeline_tag: video-classification
tags: [video-classification, trajectory-attention]
---
"""
_MAX_LABELS = 20
"""Classes that are still listed by name."""


class Motionformer(nn.Module, PyTorchModelHubMixin, library_name="motionformer"):
    """A video transformer: normalised clips `[b 3 t H W]` in, logits out.

    Any clip that divides into tokens works; position embeddings are interpolated to it. `config` is everything the
    model was built from, `config.input` the clips it was made for. `create_model` makes one by name.

    Args:
        architecture: a `ModelConfig`, or its plain values.

    Example:
        >>> model = Motionformer(ModelConfig(dim=96, depth=2, num_heads=4, num_classes=5))
        >>> model(torch.randn(1, 3, 16, 224, 224)).shape
        torch.Size([1, 5])
    """

    training_data: TrainingData | None = None
    """The videos it was trained on, where that is known: saved and loaded with the weights."""

    def __init__(self, architecture: ModelConfig | Mapping[str, Any]) -> None:
        super().__init__()
        config = architecture if isinstance(architecture, ModelConfig) else ModelConfig.from_dict(architecture)
        self.config = config
        self.tokens = Tokens(config.dim, config.patch, config.tubelet)
        self.prefix = nn.Parameter(torch.zeros(1, config.num_prefix_tokens, config.dim))
        self.positions = _build_positions(config)
        self.rotary = build_rotary(config)
        rates = [config.drop_path * i / max(1, config.depth - 1) for i in range(config.depth)]
        self.blocks = nn.ModuleList(build_block(config, rate) for rate in rates)
        for number in adapted_blocks(config):
            self.blocks[number].adapter = AttentionAdapter(config)
        readout = build_readout(config)
        self.norm = nn.Identity() if readout.has_norm else nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.readout = readout
        self.head = build_head(config)
        self.dropout = nn.Dropout(config.dropout)
        _initialise(self)

    def forward(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b *f k"] | dict[str, Tensor]:
        """Logits of the clip; for several heads, by name; features where there are no classes."""
        return self.head(self.readout(self.forward_features(clip), self.tokens.grid(clip)))  # type: ignore[no-any-return]

    def forward_features(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b n c"]:
        """All tokens after the last norm.

        Args:
            clip: normalised clips.

        Returns:
            Prefix tokens, then patch tokens frame by frame, row by row; `model.tokens.grid(clip)` is their grid.

        Raises:
            ClipSizeError: the clip does not divide into tokens.

        Example:
            >>> model = create_model("motionformer-tiny")
            >>> model.forward_features(torch.randn(1, 3, 8, 48, 48)).shape  # a class token and 4 × 6 × 6 patches
            torch.Size([1, 145, 96])
        """
        frames = self.tokens.grid(clip)[0]
        x = self.embed(clip)
        for block in self.blocks:
            if self.config.checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, frames, use_reentrant=False)
            else:
                x = block(x, frames)
        return self.norm(x)  # type: ignore[no-any-return]

    def features(self, clip: Float[Tensor, "b 3 t H W"]) -> tuple[Float[Tensor, "b n c"], Grid]:
        """Deprecated: `forward_features`, and the grid of the patch tokens."""
        warn_deprecated("`Motionformer.features`", "`forward_features`, and `tokens.grid` for the grid")
        return self.forward_features(clip), self.tokens.grid(clip)

    def sync_features(self, segments: Tensor, batch_size: int | None = None) -> Float[Tensor, "b s f c"]:
        """Features of the segments of videos, laid out as audio-visual models take and give them.

        Args:
            segments: `[b s t 3 H W]`, normalised; of every video s segments of t frames.
            batch_size: segments per forward pass [default: all at once].

        Returns:
            A vector per token frame: a video's features are `flatten(1, 2)` of them.

        Raises:
            ValueError: the model has no readout of `frames`.
            ClipSizeError: segments of another layout.

        Example:
            >>> model = create_model("divided-tiny", num_classes=0, readout="frames")
            >>> model.sync_features(torch.randn(1, 5, 8, 3, 48, 48)).shape
            torch.Size([1, 5, 4, 96])
        """
        if self.config.readout != "frames":
            raise ValueError(
                f"this model's readout is {self.config.readout!r}; sync features are of one of 'frames', as "
                "load_model('synchformer') has."
            )
        if segments.ndim != 6 or segments.shape[3] != 3:
            raise ClipSizeError(f"segments of videos are [b s t 3 H W]; these are {list(segments.shape)}.")
        clips = segments.flatten(0, 1).transpose(1, 2)
        parts = [self(part) for part in clips.split(batch_size or max(1, len(clips)))]
        return torch.cat(parts).unflatten(0, segments.shape[:2])  # type: ignore[no-any-return]

    def reset_classifier(self, num_classes: int | dict[str, int], labels: Sequence[str] | None = None) -> None:
        """Replace the classifier by a newly initialised one; all other weights stay.

        Args:
            num_classes: a number, 0 for features only, or several heads by name.
            labels: names of the classes of a single head.

        Raises:
            ValueError: another number of `labels` than classes.

        Example:
            >>> model = create_model("motionformer-tiny", num_classes=8)
            >>> model.reset_classifier(2, labels=["left", "right"])
            >>> model(torch.randn(1, 3, 8, 48, 48)).shape
            torch.Size([1, 2])
        """
        self.config = replace(self.config, num_classes=num_classes, labels=None if labels is None else tuple(labels))
        head = build_head(self.config)
        head.apply(_initialise_layer)
        head.hidden = self.head.hidden
        self.head = head.to(self.prefix).train(self.training)

    def embed(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b n c"]:
        """Prefix and patch tokens with their positions."""
        x, grid = self.tokens(clip), self.tokens.grid(clip)
        if self.rotary is not None:
            self.rotary.check_shape(*grid[1:])
        # Times one, so that its gradient has memory of its own. In a batch of one clip it would be a view of the
        # position embedding's, and what works on gradients in place (accumulating, clipping) would count both twice.
        prefix = self.prefix.to(x.dtype) * 1.0
        x = torch.cat((prefix.expand(x.shape[0], -1, -1), x), dim=1)
        return self.dropout(x + self.positions(grid))  # type: ignore[no-any-return]

    def save_pretrained(self, save_directory: str | Path, *, hf: bool = False, **options: Any) -> str | None:
        """Write `config.json`, `model.safetensors` and a card, for `load_model`, `from_pretrained` and the hub.

        Args:
            save_directory: folder; made where it does not exist.
            hf: also what Hugging Face `transformers` needs to load it (`motionformer.hf`): further keys of
                `config.json`, the processor, and a file with one import for `trust_remote_code`.
            options: of `huggingface_hub.ModelHubMixin.save_pretrained`.

        Raises:
            ValueError: layers are wrapped or quantised, so that no model could be loaded from the weights; or, with
                `hf`, a model with several heads or none.

        Example:
            >>> create_model("motionformer-tiny").save_pretrained("model")  # doctest: +SKIP
        """
        self._check_plain()
        described = {**self._as_json(), **(describe_for_hub(self.config) if hf else {})}
        folder = Path(save_directory)
        make_folder(folder)
        (folder / TRAINING_DATA).unlink(missing_ok=True)  # of another model that was here
        remove_hub_files(folder)
        if self.training_data is not None:
            self.training_data.save(folder)
        if hf:
            write_hub_files(folder, self.config)
        return super().save_pretrained(save_directory, **{"config": described, **options})

    def _check_plain(self) -> None:
        """Weights of wrapped layers would be written under names, or in kinds, that no model can be loaded from."""
        with torch.device("meta"):
            plain = Motionformer(self.config).state_dict()
        have = self.state_dict()
        odd = sorted(have.keys() ^ plain.keys()) or [k for k, v in have.items() if type(v) is not Tensor]
        if odd:
            raise ValueError(
                f"this model's layers are wrapped or quantised ({odd[0]} and {len(odd) - 1} more): unwrap them before "
                "saving (peft: merge_and_unload(); torch.nn.utils.prune.remove; parametrize.remove_parametrizations), "
                "and quantise after loading."
            )

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "Motionformer":
        model: Motionformer = super()._from_pretrained(model_id=model_id, **options)
        if Path(model_id).is_dir():
            model.training_data = TrainingData.load(Path(model_id))
        return model

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload to the Hugging Face hub."""
        return super().push_to_hub(repo_id, **{"config": self._as_json(), **options})

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The `README.md` beside the weights."""
        return ModelCard(_write_card(self.config))

    def _as_json(self) -> dict[str, Any]:
        """The configuration as it is now: labels may have been added since the model was built."""
        return {"architecture": self.config.to_dict()}


def _initialise(model: Motionformer) -> None:
    """Truncated normal weights, zero biases; the temporal position embedding of separate positions stays at zero."""
    model.apply(_initialise_layer)
    tables: dict[str, Any] = dict(model.positions.named_parameters())
    for module in model.modules():
        if isinstance(module, AttentionAdapter):
            module.initialise()
    for table in (model.prefix, *(tables[name] for name in ("prefix", "space", "table") if name in tables)):
        nn.init.trunc_normal_(table, std=0.02)


def _initialise_layer(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Conv3d):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and afterwards each part of it as it was."""
    were_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in were_training:
            module.training = True


def build_block(config: ModelConfig, drop_path: float) -> Block | DividedBlock:
    """One block of the model's scheme."""
    layers = SCHEMES.build(config.attention, config, config.attention_options)
    options: Any = {
        "drop_path": drop_path,
        "dropout": config.dropout,
        "norm_eps": config.norm_eps,
        "activation": config.activation,
    }
    if not isinstance(layers, tuple):
        return Block(config.dim, layers, config.mlp_ratio, **options)
    time, space = layers
    return DividedBlock(config.dim, time, space, config.mlp_ratio, drop_path_time=config.drop_path_time, **options)


def _build_positions(config: ModelConfig) -> Positions:
    frames, rows, columns = config.grid
    rows, columns = config.position_grid or (rows, columns)
    if config.positions not in POSITIONS:
        raise ValueError(f"`positions` must be one of {', '.join(POSITIONS)}; not {config.positions!r}.")
    size = (config.position_frames or frames, rows, columns)
    return POSITIONS[config.positions](config.dim, size, config.num_prefix_tokens)


def _write_card(config: ModelConfig) -> str:
    """Markdown with the hub's header. It names no licence: that is for the owners of the weights to choose."""
    spec = config.input
    picked = f"at stride {spec.stride}" if spec.sampling == "stride" else "one from each segment of the video"
    rows = {
        "attention": f"{config.attention}, {config.kernel.kind}",
        "size": f"width {config.dim}, {config.depth} layers, {config.num_heads} heads",
        **({"adapters": describe_adapters(config)} if config.adapter.attention else {}),
        "clip": f"{spec.frames} frames {picked}, {spec.height} × {spec.width} pixels, {spec.channels}",
        "sampling": f"{spec.protocol} protocol",
        "classes": _classes(config),
        "made from": f"`{config.source}`, whose licence holds for this model too"
        if config.source
        else "random weights",
    }
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    return f"""{_CARD_HEAD}
# A video transformer of the Motionformer family

| | |
|---|---|
{table}

```python
from motionformer import load_model

model = load_model("this folder, or its name on the hub")
```

The model is that of [Keeping Your Eye on the Ball](https://arxiv.org/abs/2106.05392): trajectory attention in video
transformers.
"""


def _classes(config: ModelConfig) -> str:
    if isinstance(config.num_classes, dict):
        return ", ".join(f"{count} of {name}" for name, count in config.num_classes.items())
    if config.labels is None or len(config.labels) > _MAX_LABELS:
        return str(config.num_classes or "none: features")
    return ", ".join(label.replace("|", "\\|") for label in config.labels)
