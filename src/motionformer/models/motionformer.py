"""The whole model: clip → tokens → blocks → readout → logits (method.md §2)."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from motionformer.attention import SCHEMES
from motionformer.models.block import EPS, Block, DividedBlock
from motionformer.models.config import ModelConfig, PositionKind, ReadoutKind
from motionformer.models.head import ClassReadout, Head, HiddenLayer, MotionReadout, MultiHead
from motionformer.models.tokens import Grid, JointPositions, Positions, SeparatePositions, Tokens
from motionformer.models.training_data import TRAINING_DATA, TrainingData

CARD_HEAD = """---
library_name: motionformer
pipeline_tag: video-classification
tags: [video-classification, trajectory-attention]
---
"""
MAX_LABELS = 20
"""Classes that are still listed by name."""
Readout = ClassReadout | MotionReadout
POSITIONS: dict[PositionKind, type[SeparatePositions] | type[JointPositions]] = {
    "separate": SeparatePositions,
    "joint": JointPositions,
}
READOUTS: dict[ReadoutKind, type[Readout]] = {"class": ClassReadout, "motion": MotionReadout}


class Motionformer(nn.Module, PyTorchModelHubMixin, library_name="motionformer"):
    """A video transformer: normalised clips `[b 3 t H W]` in, logits out.

    Any clip that divides into tokens works; position embeddings are interpolated to it. `config` says everything the
    model was built from, and `config.input` what clips it was made for.
    """

    training_data: TrainingData | None = None
    """The videos it has learnt from, where that is known: saved and loaded with the weights."""

    def __init__(self, architecture: ModelConfig | Mapping[str, Any]) -> None:
        super().__init__()
        config = architecture if isinstance(architecture, ModelConfig) else ModelConfig.from_dict(architecture)
        self.config = config
        self.tokens = Tokens(config.dim, config.patch, config.tubelet)
        self.prefix = nn.Parameter(torch.zeros(1, config.num_prefix_tokens, config.dim))
        self.positions = build_positions(config)
        rates = [config.drop_path * i / max(1, config.depth - 1) for i in range(config.depth)]
        self.blocks = nn.ModuleList(build_block(config, rate) for rate in rates)
        self.norm = nn.LayerNorm(config.dim, eps=EPS)
        self.readout = build_readout(config)
        self.head = build_head(config)
        self.dropout = nn.Dropout(config.dropout)
        initialise(self)

    def forward(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b k"] | dict[str, Tensor]:
        """Logits of the clip; for several heads, by name."""
        return self.head(self.readout(*self.features(clip)))  # type: ignore[no-any-return]

    def features(self, clip: Float[Tensor, "b 3 t H W"]) -> tuple[Float[Tensor, "b n c"], Grid]:
        """All tokens after the last norm, prefix first, and the grid of the patch tokens."""
        grid = self.tokens.grid(clip)
        x = self.embed(clip)
        for block in self.blocks:
            if self.config.checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, grid[0], use_reentrant=False)
            else:
                x = block(x, grid[0])
        return self.norm(x), grid

    def embed(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b n c"]:
        """Prefix and patch tokens with their positions."""
        x = self.tokens(clip)
        # Times one, so that its gradient has memory of its own. In a batch of one clip it would be a view of the
        # position embedding's, and what works on gradients in place (accumulating, clipping) would count both twice.
        prefix = self.prefix.to(x.dtype) * 1.0
        x = torch.cat((prefix.expand(x.shape[0], -1, -1), x), dim=1)
        return self.dropout(x + self.positions(self.tokens.grid(clip)))  # type: ignore[no-any-return]

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write `config.json`, `model.safetensors` and a card, for `load_model`, `from_pretrained` and the hub."""
        self._check_plain()
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TRAINING_DATA).unlink(missing_ok=True)  # of another model that was here
        if self.training_data is not None:
            self.training_data.save(folder)
        return super().save_pretrained(save_directory, **{"config": self._as_json(), **options})

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
        return ModelCard(write_card(self.config))

    def _as_json(self) -> dict[str, Any]:
        """The configuration as it is now: labels may have been added since the model was built."""
        return {"architecture": self.config.to_dict()}


def initialise(model: Motionformer) -> None:
    """Truncated normal weights, zero biases; the temporal position embedding of separate positions stays at zero."""

    def one(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Conv3d):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    model.apply(one)
    tables: dict[str, Any] = dict(model.positions.named_parameters())
    for table in (model.prefix, *(tables[name] for name in ("prefix", "space", "table") if name in tables)):
        nn.init.trunc_normal_(table, std=0.02)


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
    if not isinstance(layers, tuple):
        return Block(config.dim, layers, config.mlp_ratio, drop_path=drop_path, dropout=config.dropout)
    return DividedBlock(
        config.dim,
        layers[0],
        layers[1],
        config.mlp_ratio,
        drop_path=drop_path,
        drop_path_time=config.drop_path_time,
        dropout=config.dropout,
    )


def build_positions(config: ModelConfig) -> Positions:
    frames, rows, columns = config.grid
    rows, columns = config.position_grid or (rows, columns)
    _check(config.positions, POSITIONS, "positions")
    size = (config.position_frames or frames, rows, columns)
    return POSITIONS[config.positions](config.dim, size, config.num_prefix_tokens)


def build_readout(config: ModelConfig) -> Readout:
    _check(config.readout, READOUTS, "readout")
    return READOUTS[config.readout](config.num_prefix_tokens)


def build_head(config: ModelConfig) -> nn.Module:
    width = READOUTS[config.readout].width * config.dim
    hidden = HiddenLayer(width, config.dim, config.head_activation) if config.hidden_head else nn.Identity()
    features = config.dim if config.hidden_head else width
    if isinstance(config.num_classes, dict):
        return MultiHead(features, config.num_classes, hidden, config.head_dropout)
    return Head(features, config.num_classes, hidden, config.head_dropout)


def _check(key: str, known: Iterable[str], what: str) -> None:
    if key not in known:
        raise ValueError(f"{what} is one of {', '.join(known)}; not {key!r}.")


def write_card(config: ModelConfig) -> str:
    """What the model is, what clips it takes, how to load it: Markdown with the hub's header.

    It names no licence: that of weights is for those to say whose they are.
    """
    spec = config.input
    picked = f"at stride {spec.stride}" if spec.sampling == "stride" else "one of each segment of the video"
    rows = {
        "attention": f"{config.attention}, {config.attend.kind}",
        "size": f"width {config.dim}, {config.depth} layers, {config.num_heads} heads",
        "clip": f"{spec.frames} frames {picked}, {spec.height} × {spec.width} pixels, {spec.channels}",
        "sampling": f"{spec.protocol} protocol",
        "classes": _classes(config),
        "made from": f"`{config.source}`, whose licence holds for this model too"
        if config.source
        else "random weights",
    }
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    return f"""{CARD_HEAD}
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
    if config.labels is None or len(config.labels) > MAX_LABELS:
        return str(config.num_classes or "none: features")
    return ", ".join(label.replace("|", "\\|") for label in config.labels)
