"""The whole model: clip → tokens → blocks → readout → logits (method.md §2)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from motionformer.models.block import EPS
from motionformer.models.build import build_block, build_head, build_positions, build_readout
from motionformer.models.card import write_card
from motionformer.models.config import ModelConfig
from motionformer.models.tokens import Grid, Tokens
from motionformer.models.training_data import TRAINING_DATA, TrainingData


class Motionformer(nn.Module, PyTorchModelHubMixin, library_name="motionformer"):
    """A video transformer: normalised clips `[b 3 t H W]` in, logits out.

    Any clip that divides into tokens works; position tables are interpolated to it. `config` says everything the
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
        # position table's, and whatever works on gradients in place (accumulating, clipping) would count both twice.
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
    """Truncated normal weights, zero biases; the time table of separate positions stays at zero."""

    def one(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Conv3d):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    model.apply(one)
    tables: dict[str, Any] = dict(model.positions.named_parameters())
    for table in (model.prefix, *(tables[name] for name in ("prefix", "space", "table") if name in tables)):
        nn.init.trunc_normal_(table, std=0.02)
