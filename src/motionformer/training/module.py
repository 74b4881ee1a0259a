"""The LightningModule: one training step, one validation step, the optimiser and its schedule.

The loss of a step is the sum over the clips of the *global* batch divided by its nominal size. Every process divides by
the number of clips in its plan, not by those it could read: a failed clip adds nothing, the others weigh the same in
any process, and no process has to ask another how many it has.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torchmetrics import Metric

from motionformer.data import Failure, FailurePolicy
from motionformer.errors import FailedVideosError, NonFiniteLossError, TrainingError
from motionformer.models.motionformer import Motionformer
from motionformer.runs import write_atomically
from motionformer.training.datamodule import Batch
from motionformer.training.objectives import Mix, Tasks, by_task, find_objective
from motionformer.training.recipe import OptimiserPart, Recipe, SchedulePart
from motionformer.training.trainer import Plan

_REMEDIES = "a smaller optimiser.lr, a longer schedule.warmup, optimiser.clip_norm=1, or engine.precision=32-true"


class TrainingModule(LightningModule):
    """A model in training, with its failed clips and validation history so far."""

    def __init__(
        self,
        model: Motionformer,
        recipe: Recipe,
        plan: Plan,
        new: frozenset[str] = frozenset(),
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """`new`: names of newly initialised parameters. `data`: of `describe_data`, for the checkpoints."""
        super().__init__()
        self.model, self.recipe, self.plan, self.new, self.data = model, recipe, plan, new, dict(data or {})
        self.train_failures = FailurePolicy(plan.train_clips, recipe.data.max_failed_share)
        self.val_failures = FailurePolicy(plan.val_clips, recipe.data.max_failed_share)  # up to it, counted as wrong
        self.history: list[dict[str, int | float]] = []  # one entry per validation
        self.objective = find_objective(model.config)
        self.measured = nn.ModuleDict(self.objective.metrics())
        self.last_loss = self._loss_sum = 0.0

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            _shard(self.model, cast(DeviceMesh, self.device_mesh)["data_parallel"])

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        step, part = self.trainer.global_step, batch_idx % self.plan.accumulation
        self._seed(step, part)
        self._count(self.train_failures, batch["failed"])
        loss = self._loss(batch, step, part)
        value = loss.detach()
        if not torch.isfinite(value):
            rank, number = self.trainer.global_rank, step + 1
            file = self._write_batch(value, batch, number, f"nonfinite-step-{number}-rank-{rank}.json")
            raise NonFiniteLossError(
                f"the loss is {float(value)} in step {number}. The {len(batch['path'])} clips of the batch are listed "
                f"in {file}. Inspect them, or use {_REMEDIES}; the weights were not changed by this step."
            )
        self._log_loss(float(value), step, part)
        return loss

    def on_validation_epoch_start(self) -> None:
        self._seed(0, 0)  # randomly drawn prototypes are the same in every validation

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        failures = self._count(self.val_failures, batch["failed"])
        metrics = self._metrics()
        if len(batch["index"]):
            logits, label = by_task(self.model(batch["clip"])), by_task(batch["label"])
            loss = self._clip_losses(logits, label).mean()
            if not torch.isfinite(loss):
                step, rank = self.trainer.global_step, self.trainer.global_rank
                file = self._write_batch(loss, batch, step, f"nonfinite-validation-after-step-{step}-rank-{rank}.json")
                raise NonFiniteLossError(
                    f"the validation loss is {float(loss)} after step {step}. The {len(batch['path'])} clips of the "
                    f"batch are listed in {file}. Inspect them, or start again in another output with {_REMEDIES}; no "
                    "model was saved."
                )
            self.objective.measure(metrics, logits, label)
        else:
            self._zero_loss()
        if failures:
            self.objective.count_failed(metrics, failures)

    def on_validation_epoch_end(self) -> None:
        scores = {name: float(metric.compute()) for name, metric in self._metrics().items()}
        for metric in self._metrics().values():
            metric.reset()
        step = self.trainer.global_step
        epoch = -(-step // self.plan.steps_per_epoch)
        self.history.append({"epoch": epoch, "step": step, **scores})
        self._write({"epoch": epoch, **{f"val/{name}": value for name, value in scores.items()}}, step)

    @property
    def best_validation(self) -> dict[str, int | float] | None:
        """The entry of the history with the best metric; of equal ones, the lower loss."""
        return max(self.history, key=lambda entry: (entry[self.objective.best], -entry["loss"]), default=None)

    @property
    def trainable(self) -> dict[str, nn.Parameter]:
        """The trainable parameters by name."""
        return {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}

    def configure_optimizers(self) -> Any:
        part, lr = self.recipe.optimiser, self.plan.lr
        first, second = part.betas
        optimiser = torch.optim.AdamW(_parameter_groups(self.model, part, lr, self.new), lr=lr, betas=(first, second))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, _make_schedule(self.recipe.schedule, self.plan))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Called in every process: their failures are gathered here."""
        self._share_failures()
        checkpoint["motionformer"] = {
            "history": self.history,
            "accumulation": self.plan.accumulation,
            "data": self.data,
            "train_failures": [asdict(failure) for failure in self.train_failures.failures.values()],
            "val_failures": [asdict(failure) for failure in self.val_failures.failures.values()],
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        ours = checkpoint["motionformer"]
        if ours["accumulation"] != self.plan.accumulation and checkpoint["global_step"] % self.plan.steps_per_epoch:
            raise TrainingError(
                f"{self.recipe.folder}: the last checkpoint is from the middle of an epoch of {ours['accumulation']} "
                f"batches per step; now there would be {self.plan.accumulation}. Resume with as many devices as before."
            )
        self.history = list(ours["history"])
        self._count(self.train_failures, ours["train_failures"])
        self._count(self.val_failures, ours["val_failures"])

    def _loss(self, batch: Batch, step: int, part: int) -> Tensor:
        if not len(batch["index"]):
            return self._zero_loss()
        clip, recipe = batch["clip"], self.recipe
        rng = np.random.default_rng([recipe.seed, step, part, self.trainer.global_rank])
        size = (clip.shape[-2], clip.shape[-1])
        mix = Mix.draw(rng, recipe.augmentation.mixup, recipe.augmentation.cutmix, len(clip), size)
        logits = by_task(self.model(clip if mix is None else mix.mix_clips(clip)))
        losses = self._clip_losses(logits, by_task(batch["label"]), recipe.label_smoothing, mix)
        return losses.sum() / self.plan.clips_at_once

    def _clip_losses(self, logits: Tasks, label: Tasks, smoothing: float = 0.0, mix: Mix | None = None) -> Tensor:
        """One loss per clip, the mean over its tasks."""
        losses = []
        for task, of_task in label.items():
            targets = self.objective.targets(of_task, logits[task].shape[-1], smoothing)
            losses.append(self.objective.losses(logits[task], targets if mix is None else mix.mix_targets(targets)))
        return torch.stack(losses).mean(dim=0)

    def _zero_loss(self) -> Tensor:
        """A loss of zero that depends on every parameter: a process without a clip still takes part in the step."""
        spec = self.model.config.input
        clip = torch.zeros(1, 3, spec.frames, spec.height, spec.width, device=self.device)
        return 0.0 * torch.stack([logits.float().sum() for logits in by_task(self.model(clip)).values()]).sum()

    def _seed(self, step: int, part: int) -> None:
        """Dropout and drop path depend on the step alone, so a resumed run draws the same."""
        key = np.random.SeedSequence([self.recipe.seed, step, part, self.trainer.global_rank])
        torch.manual_seed(int(key.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def _log_loss(self, loss: float, step: int, part: int) -> None:
        """The mean loss of this process over its part of the global batch, every `log_steps` steps."""
        self._loss_sum = loss if part == 0 else self._loss_sum + loss
        if part + 1 < self.plan.accumulation:
            return
        self.last_loss = mean = self._loss_sum / self.plan.accumulation
        if (step + 1) % self.recipe.engine.log_steps == 0:
            lr = max(group["lr"] for group in self.trainer.optimizers[0].param_groups)
            self._write({"train/loss": mean, "train/lr": lr}, step + 1)

    def _write(self, values: Mapping[str, int | float], step: int) -> None:
        """To the loggers at once, under the number of steps done: a row exists before the checkpoint that contains
        its step is written, which Lightning's own logging (after the batch) does not promise."""
        for logger in self.loggers:
            logger.log_metrics(dict(values), step)

    def _write_batch(self, loss: Tensor, batch: Batch, step: int, name: str) -> Path:
        found = {
            "loss": str(float(loss)),
            "step": step,
            "rank": self.trainer.global_rank,
            "clips_finite": bool(torch.isfinite(batch["clip"]).all()),
            "clips": [{"index": int(i), "path": path} for i, path in zip(batch["index"], batch["path"], strict=True)],
        }
        file = self.recipe.folder / name
        write_atomically(file, json.dumps(found, indent=2))
        return file

    def _metrics(self) -> dict[str, Metric]:
        return {name: cast(Metric, metric) for name, metric in self.measured.items()}

    def _share_failures(self) -> None:
        if self.trainer.world_size == 1:
            return
        for policy in (self.train_failures, self.val_failures):
            gathered: list[Any] = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(gathered, [asdict(failure) for failure in policy.failures.values()])
            for failures in gathered:
                self._count(policy, failures)

    def _count(self, policy: FailurePolicy, failed: list[dict[str, Any]]) -> list[Failure]:
        """More failures than the accepted share end the run."""
        failures = [Failure(**values) for values in failed]
        try:
            policy.count(failures)
        except FailedVideosError as error:
            part = "training" if policy is self.train_failures else "validation"
            raise TrainingError(f"{self.recipe.folder}: {part}: {error} The share is data.max_failed_share.") from error
        return failures


def _shard(model: Motionformer, mesh: DeviceMesh) -> None:
    """FSDP: every process keeps a part of the parameters, gathered block by block. Runs once."""
    if isinstance(model, FSDPModule):
        return
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def _make_schedule(part: SchedulePart, plan: Plan) -> Callable[[int], float]:
    """`factor(step)` on the learning rate: a pure function of the optimiser step, with nothing to save or restore."""
    boundaries = [round(epoch * plan.steps_per_epoch) for epoch in part.milestones]
    length = plan.total_steps - plan.warmup_steps

    def factor(step: int) -> float:
        if step < plan.warmup_steps:
            return (step + 1) / plan.warmup_steps
        if part.kind == "step":
            return part.divisor ** -sum(step >= boundary for boundary in boundaries)
        done = min(1.0, (step - plan.warmup_steps) / length)
        return part.final + (1 - part.final) * (1 + math.cos(math.pi * done)) / 2

    return factor


def _parameter_groups(
    model: Motionformer, part: OptimiserPart, lr: float, new: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """One group per learning rate and decay, in the order of the layers. Newly initialised parameters have
    `new_rate` times the learning rate, in any layer."""
    groups: dict[tuple[int, bool, bool], dict[str, Any]] = {}
    top = len(model.blocks) + 1
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        is_new = name in new and part.new_rate != 1.0
        layer = _layer_of(name, top) if part.layer_decay < 1 and not is_new else top
        decays = part.decay_everything or _decays_by_default(name, weight)
        group = groups.setdefault(
            (layer, decays, is_new),
            {
                "params": [],
                "lr": lr * part.layer_decay ** (top - layer) * (part.new_rate if is_new else 1.0),
                "weight_decay": part.weight_decay if decays else 0.0,
            },
        )
        group["params"].append(weight)
    return [groups[key] for key in sorted(groups)]


def _decays_by_default(name: str, weight: nn.Parameter) -> bool:
    """Matrices and kernels decay; biases, norms, tokens and position embeddings do not."""
    return weight.ndim > 1 and not name.startswith(("prefix", "positions."))


def _layer_of(name: str, top: int) -> int:
    """0 for tokens and positions, i + 1 for block i, `top` for the final norm and the head."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return 0 if name.startswith(("tokens.", "prefix", "positions.")) else top
