"""The configuration and the model as transformers keeps them; the network inside is a plain `Motionformer`."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel, initialization
from transformers.modeling_outputs import ImageClassifierOutput

from motionformer.errors import CheckpointError
from motionformer.hf.processor import OfThisPackage, check_sampling
from motionformer.models import ModelConfig, Motionformer
from motionformer.models.hub import MODEL_TYPE, describe_for_hub, write_hub_files


class MotionformerConfig(OfThisPackage, PreTrainedConfig):  # type: ignore[misc]
    """The configuration of a model as transformers keeps it: `ModelConfig` as plain values, and labels.

    Labels are transformers' (`id2label`, `num_labels`, `problem_type`); the rest is in `architecture`.

    Args:
        architecture: values of `ModelConfig.to_dict()` [default: the base model].

    Raises:
        ValueError: several heads or none, or values that describe no model.

    Example:
        ```python
        config = MotionformerConfig.of(create_model("motionformer-tiny").config)
        ```
    """

    model_type = MODEL_TYPE

    def __init__(self, architecture: dict[str, Any] | None = None, **options: Any) -> None:
        config = ModelConfig.from_dict(architecture or {})
        described = describe_for_hub(config)
        self.architecture = config.to_dict()
        if options.get("id2label") is None and options.get("num_labels") in (None, config.num_classes):
            options.update(id2label=described["id2label"], label2id=described["label2id"])
        options["problem_type"] = options.get("problem_type") or described["problem_type"]
        super().__init__(**{**options, "auto_map": described["auto_map"]})

    @classmethod
    def of(cls, config: ModelConfig) -> "MotionformerConfig":
        """The same model for transformers."""
        return cls(architecture=config.to_dict())

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **options: Any) -> Any:
        """As transformers does it, but the `config.json` of another family is an error.

        Raises:
            CheckpointError: it is of another family.
        """
        kind = config_dict.get("model_type", MODEL_TYPE)
        if kind != MODEL_TYPE:
            raise CheckpointError(
                f"config.json is that of another family ({kind!r}): read it with `load_model`, if it is one that "
                "this package knows, and give the model to `MotionformerForVideoClassification.wrap`."
            )
        return super().from_dict(config_dict, **options)

    def model_config(self) -> ModelConfig:
        """The model to build: its classes and their names are those that transformers was told.

        Raises:
            ValueError: a problem type that is no classification.
        """
        config = ModelConfig.from_dict(self.architecture or {})
        if self.problem_type not in ("single_label_classification", "multi_label_classification"):
            raise ValueError(f"`problem_type` ({self.problem_type!r}) must be single- or multi_label_classification.")
        names = [self.id2label[i] for i in range(self.num_labels)]
        unnamed = names == [f"LABEL_{i}" for i in range(len(names))]
        return replace(
            config,
            num_classes=len(names),
            labels=None if unnamed else tuple(names),
            scoring="sigmoid" if self.problem_type == "multi_label_classification" else "softmax",
        )

    @property
    def num_frames(self) -> int:
        """Of a clip: what the pipeline asks the processor for."""
        return self.model_config().input.frames

    @property
    def hidden_size(self) -> int:
        """Width of the tokens."""
        return self.model_config().dim

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `architecture` has the labels that were set since."""
        return {**super().to_dict(), "architecture": self.model_config().to_dict()}


class MotionformerForVideoClassification(OfThisPackage, PreTrainedModel):  # type: ignore[misc]
    """A `Motionformer` for transformers' `Trainer`, `pipeline` and `from_pretrained`; the network is `.model`.

    Folders that it writes are those of `Motionformer.save_pretrained(folder, hf=True)`: `load_model` reads them too.

    Args:
        config: what to build.

    Example:
        ```python
        model = MotionformerForVideoClassification.wrap(load_model("motion-tiny"))
        inputs = MotionformerVideoProcessor.of(model)("clip.mp4")
        model(**inputs).logits
        ```
    """

    config_class = MotionformerConfig
    base_model_prefix = "model"  # so that names without it, as `load_model` has them, are found
    main_input_name = "pixel_values"
    input_modalities = ("video",)
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block", "DividedBlock"]  # noqa: RUF012 (transformers' own form)

    def __init__(self, config: MotionformerConfig) -> None:
        super().__init__(config)
        self.model = Motionformer(config.model_config())
        self.post_init()

    @classmethod
    def wrap(cls, model: Motionformer) -> "MotionformerForVideoClassification":
        """A model of this package, the same parameters in memory.

        Raises:
            ValueError: several heads or none.
        """
        with torch.device("meta"):
            made = cls(MotionformerConfig.of(model.config))
        made.model = model
        made.train(model.training)
        return made

    def forward(
        self,
        pixel_values: Tensor,
        labels: Tensor | None = None,
        sampling: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> ImageClassifierOutput | tuple[Any, ...]:
        """Logits of clips, and their loss.

        Args:
            pixel_values: `[b t 3 H W]`, or `[b v t 3 H W]` for several views of each video: their scores are averaged,
                and the logits are those of the mean score.
            labels: classes `[b]`, or `[b k]` where each class is true or false by itself.
            sampling: how the processor read the clips; compared with the clips that the model was made for.
            output_hidden_states: also the tokens after the embedding and after each block (of single views only).
            output_attentions: not offered: `motionformer.record_attention(model.model)` records them.
            return_dict: a plain tuple where it is False.

        Raises:
            ValueError: another sampling, another shape, or outputs that are not offered.
        """
        if sampling is not None:
            check_sampling(sampling, self.model.config.input)
        if output_attentions or (output_attentions is None and self.config.output_attentions):
            raise ValueError(
                "`output_attentions` is not offered: use `motionformer.record_attention(model.model)`, which records "
                "where each trajectory looks."
            )
        if pixel_values.ndim not in (5, 6) or pixel_values.shape[-3] != 3:
            raise ValueError(f"`pixel_values` must be [b t 3 H W] or [b v t 3 H W]; not {list(pixel_values.shape)}.")
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if wanted and pixel_values.ndim == 6:
            raise ValueError("`output_hidden_states` is of single views: call the processor with views=1, crops=1.")
        states: list[Tensor] = []
        with _collecting(self.model.blocks, states) if wanted else nullcontext():
            logits = self._logits(pixel_values)
        loss = None if labels is None else self._loss(logits, labels)
        out = ImageClassifierOutput(loss=loss, logits=logits, hidden_states=tuple(states) or None)
        return out.to_tuple() if return_dict is False else out

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **options: Any) -> Any:
        """As transformers does it, but tensors that are missing are an error, not random numbers and a warning.

        Args:
            args: the folder or the name on the hub.
            output_loading_info: also return what was loaded.
            options: of `PreTrainedModel.from_pretrained`. `num_labels=…, ignore_mismatched_sizes=True` gives it a new
                classifier.

        Raises:
            CheckpointError: weights of another model, a part of one, or a broken file.
        """
        try:
            model, info = super().from_pretrained(*args, output_loading_info=True, **options)
        except SafetensorError as error:
            raise CheckpointError(f"{args[0]}: not a readable safetensors file ({error}).") from error
        for what in ("missing", "unexpected"):
            names = sorted(info[f"{what}_keys"])
            if names:
                raise CheckpointError(
                    f"{args[0]}: {len(names)} tensors are {what} ({', '.join(names[:3])}{' …' * (len(names) > 3)}): "
                    "these are weights of another model, or a part of one."
                )
        return (model, info) if output_loading_info else model

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> None:
        """Write a folder that transformers and `load_model` read.

        Args:
            save_directory: made where it does not exist.
            options: of `PreTrainedModel.save_pretrained`.
        """
        super().save_pretrained(save_directory, **options)
        write_hub_files(Path(save_directory), self.model.config)

    def _set_gradient_checkpointing(self, enable: bool = True, every_n_layers: int = 1, **_: Any) -> None:
        """What `Trainer` calls for activation checkpointing: that of whole blocks, `ModelConfig.checkpointing`."""
        if every_n_layers != 1:
            raise ValueError(f"`every_n_layers` ({every_n_layers}) must be 1: every block is computed again, or none.")
        self.model.config = replace(self.model.config, checkpointing=enable)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As `Motionformer` does: transformers calls this for what no file has, a new classifier."""
        if isinstance(module, nn.Linear | nn.Conv3d):
            initialization.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                initialization.zeros_(module.bias)

    def _logits(self, pixel_values: Tensor) -> Tensor:
        if pixel_values.ndim == 5:
            return self.model(pixel_values.transpose(1, 2))  # type: ignore[no-any-return]
        views = torch.stack([self._logits(view) for view in pixel_values.unbind(1)]).float()
        if self.model.config.scoring == "sigmoid":
            return views.sigmoid().mean(0).logit()
        return views.log_softmax(-1).logsumexp(0) - torch.tensor(float(len(views))).log()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.model.config.scoring == "sigmoid":
            return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return F.cross_entropy(logits, labels)


@contextmanager
def _collecting(blocks: nn.ModuleList, states: list[Tensor]) -> Iterator[None]:
    """What goes into the first block, and what comes out of each."""
    hooks = [blocks[0].register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))]
    hooks += [block.register_forward_hook(lambda _, __, out: states.append(out)) for block in blocks]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
