"""The parts of the engine, each against a loop nobody can misread."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from motionformer.data import Visit
from motionformer.distributed import Rank
from motionformer.errors import RecipeError
from motionformer.models import InputSpec, create_model
from motionformer.training.datamodule import _shuffled, _stratified, _TrainBatches, _ValBatches
from motionformer.training.module import TrainingModule, _layer_of, _make_schedule, _parameter_groups
from motionformer.training.objectives import Mix, _SingleLabel
from motionformer.training.recipe import OptimiserPart, Recipe, SchedulePart, make_recipe
from motionformer.training.sources import _train_transform
from motionformer.training.trainer import Plan, make_plan
from motionformer.video.transforms import ColourJitter, RandAugment


def recipe(*overrides: str) -> Recipe:
    return make_recipe({"name": "r", "global_batch": 16, "epochs": 3}, overrides)


class TestPlan:
    def test_the_global_batch_is_dealt_and_the_rate_scaled(self) -> None:
        plan = make_plan(recipe("engine.max_clips=3", "optimiser.lr=1e-4", "schedule.warmup=0.5"), 100, 7, 2)
        assert (plan.processes, plan.clips_at_once, plan.accumulation) == (2, 2, 4)
        assert plan.lr == pytest.approx(1e-4 * 16 / 256)
        assert (plan.steps_per_epoch, plan.total_steps, plan.warmup_steps) == (6, 18, 3)
        assert plan.position(13) == (2, 1)

    @pytest.mark.parametrize("processes", [1, 2, 4, 8, 16])
    @pytest.mark.parametrize("limit", [0, 1, 3, 5, 100])
    def test_the_parts_always_make_the_whole(self, processes: int, limit: int) -> None:
        plan = make_plan(recipe(f"engine.max_clips={limit}"), 64, 1, processes)
        assert plan.processes * plan.clips_at_once * plan.accumulation == 16
        assert plan.clips_at_once <= (limit or 16)

    def test_what_cannot_be_dealt_is_refused_with_a_way_out(self) -> None:
        with pytest.raises(RecipeError, match="global_batch=15 or 18"):
            make_plan(recipe(), 100, 1, 3)
        with pytest.raises(RecipeError, match="less than one global batch of 16"):
            make_plan(recipe(), 15, 1, 1)


class TestSchedule:
    PLAN = make_plan(recipe("schedule.warmup=1"), 160, 1, 1)  # 10 steps an epoch

    def test_step(self) -> None:
        part = SchedulePart("step", [1.5, 2.0], divisor=10.0, warmup=1.0)
        factor = _make_schedule(part, self.PLAN)
        expected = [(i + 1) / 10 for i in range(10)] + [1.0] * 5 + [0.1] * 5 + [0.01] * 10
        assert [factor(i) for i in range(30)] == pytest.approx(expected)

    def test_cosine(self) -> None:
        factor = _make_schedule(SchedulePart("cosine", final=0.1, warmup=1.0), self.PLAN)
        assert factor(9) == factor(10) == 1.0
        assert factor(20) == pytest.approx(0.55)
        assert factor(25) == pytest.approx(0.1 + 0.9 * (1 + math.cos(0.75 * math.pi)) / 2)
        assert factor(30) == pytest.approx(0.1)


class TestOptimiser:
    def test_every_weight_once_and_only_matrices_decay(self) -> None:
        model = create_model("motionformer-tiny")
        groups = _parameter_groups(model, OptimiserPart(weight_decay=0.05), 1.0)
        found = [id(weight) for group in groups for weight in group["params"]]
        assert sorted(found) == sorted(id(weight) for weight in model.parameters())
        decaying = {id(weight) for group in groups if group["weight_decay"] for weight in group["params"]}
        for name, weight in model.named_parameters():
            table = name in ("prefix", "positions.prefix", "positions.space", "positions.time")
            assert (id(weight) in decaying) == (not name.endswith("bias") and "norm" not in name and not table), name

    def test_what_is_new_learns_faster(self) -> None:
        model = create_model("motionformer-tiny")
        new = frozenset({"positions.time", "head.classifier.weight"})
        named = {id(weight): name for name, weight in model.named_parameters()}
        groups = _parameter_groups(model, OptimiserPart(new_rate=10.0, layer_decay=0.5), 1.0, new)
        rates = {named[id(weight)]: group["lr"] for group in groups for weight in group["params"]}
        assert {name for name, rate in rates.items() if rate == 10.0} == new
        assert rates["positions.space"] == 0.5**5
        assert len(rates) == len(named)

    def test_decay_everything_as_released(self) -> None:
        (group,) = _parameter_groups(create_model("motionformer-tiny"), OptimiserPart(decay_everything=True), 1.0)
        assert group["weight_decay"] == 0.05

    def test_frozen_weights_are_left_out(self) -> None:
        model = create_model("motionformer-tiny").requires_grad_(False)
        model.head.requires_grad_(True)
        groups = _parameter_groups(model, OptimiserPart(), 1.0)
        assert sum(len(group["params"]) for group in groups) == 2

    def test_layers_learn_slower_towards_the_input(self) -> None:
        model = create_model("motionformer-tiny")
        rates = {
            id(weight): group["lr"]
            for group in _parameter_groups(model, OptimiserPart(layer_decay=0.5), 1.0)
            for weight in group["params"]
        }
        for name, weight in model.named_parameters():
            below = 0 if name.startswith(("head", "norm")) else 4 - int(name[7]) if name.startswith("blocks") else 5
            assert rates[id(weight)] == pytest.approx(0.5**below), name
        assert _layer_of("blocks.11.norm1.weight", 13) == 12


class TestLosses:
    def test_equal_to_pytorch_with_smoothing(self) -> None:
        logits, label = torch.randn(5, 7), torch.tensor([0, 6, 3, 3, 1])
        objective = _SingleLabel(7)
        found = objective.losses(logits, objective.targets(label, 7, 0.2))
        expected = torch.nn.functional.cross_entropy(logits, label, label_smoothing=0.2, reduction="none")
        torch.testing.assert_close(found, expected)

    def test_scores_count_by_hand(self) -> None:
        logits = {"label": torch.eye(8)[[0, 1, 2]]}
        scores = _SingleLabel(8).scores(logits, {"label": torch.tensor([0, 1, 7])})
        assert scores["top1"].tolist() == [1, 1, 0]
        pair = {"verb": torch.eye(3), "noun": torch.eye(3)}
        scores = _SingleLabel({"verb": 2, "noun": 3}).scores(
            pair, {"verb": torch.tensor([0, 1, 0]), "noun": torch.tensor([0, 2, 2])}
        )
        assert scores["verb_top1"].tolist() == [1, 1, 0]
        assert scores["noun_top1"].tolist() == [1, 0, 1]
        assert scores["action"].tolist() == [1, 0, 0]

    def test_verb_and_noun_are_averaged_in_training_and_in_validation(self) -> None:
        logits = {"verb": torch.randn(4, 3), "noun": torch.randn(4, 5)}
        label = {"verb": torch.tensor([0, 1, 2, 0]), "noun": torch.tensor([4, 0, 2, 2])}
        for smoothing in (0.0, 0.2):
            one, other = (
                torch.nn.functional.cross_entropy(
                    logits[task], label[task], label_smoothing=smoothing, reduction="none"
                )
                for task in label
            )
            plain = recipe()
            model = create_model("motionformer-tiny", num_classes={"verb": 3, "noun": 5}, depth=1)
            module = TrainingModule(model, plain, make_plan(plain, 4096, 512, 1))
            torch.testing.assert_close(module._clip_losses(logits, label, smoothing), (one + other) / 2)
            if smoothing == 0:
                torch.testing.assert_close(module.objective.scores(logits, label)["loss"], (one + other) / 2)


class TestMixing:
    def test_mixup_is_a_weighted_mean(self) -> None:
        clip, targets = torch.randn(3, 3, 2, 4, 4), torch.eye(3)
        mix = Mix(torch.tensor([1, 2, 0]), 0.25)
        for i, partner in enumerate((1, 2, 0)):
            torch.testing.assert_close(mix.mix_clips(clip)[i], 0.75 * clip[i] + 0.25 * clip[partner])
            torch.testing.assert_close(mix.mix_targets(targets)[i], 0.75 * targets[i] + 0.25 * targets[partner])

    @pytest.mark.parametrize("seed", range(8))
    def test_cutmix_labels_are_the_share_of_pixels(self, seed: int) -> None:
        mix = Mix.draw(np.random.default_rng(seed), 0.0, 1.0, 2, (12, 10))
        assert mix is not None
        mix = replace(mix, partner=torch.tensor([1, 0]))
        clip = torch.stack([torch.zeros(3, 2, 12, 10), torch.ones(3, 2, 12, 10)])
        assert mix.mix_clips(clip)[0].mean().item() == pytest.approx(mix.share)
        assert mix.mix_targets(torch.eye(2))[0, 1].item() == pytest.approx(mix.share)

    def test_the_same_key_is_the_same_draw(self) -> None:
        draws = [Mix.draw(np.random.default_rng([0, step]), 0.2, 1.0, 4, (8, 8)) for step in (1, 1, 2)]
        assert draws[0] is not None
        assert draws[1] is not None
        assert draws[2] is not None
        assert draws[0].share == draws[1].share != draws[2].share
        assert Mix.draw(np.random.default_rng(0), 0.0, 0.0, 4, (8, 8)) is None


class TestOrder:
    @staticmethod
    def batches(plan: Plan, steps: int, repeats: int = 1) -> list[list[list[Visit]]]:
        """For every process its batches."""
        places = [Rank(rank, plan.processes) for rank in range(plan.processes)]
        order = _shuffled(plan.train_clips)
        return [list(_TrainBatches(plan, order, place, 5, repeats, lambda: steps)) for place in places]

    def test_classes_take_turns(self) -> None:
        labels = [0] * 40 + [1] * 20 + [2] * 20
        order = _stratified(labels)
        first = order(3, 0)
        assert sorted(first) == list(range(80))
        for start in range(0, 80, 16):  # every batch: half of it class 0, a quarter each of the others
            counts = np.bincount([labels[index] for index in first[start : start + 16]], minlength=3)
            assert np.abs(counts - [8, 4, 4]).max() <= 1
        assert order(3, 0) == first
        assert order(3, 1) != first
        assert order(4, 0) != first

    def global_batches(self, plan: Plan, steps: int, repeats: int = 1) -> list[set[Visit]]:
        parts = self.batches(plan, steps, repeats)
        made = []
        for step in range(len(parts[0]) // plan.accumulation):
            span = slice(step * plan.accumulation, (step + 1) * plan.accumulation)
            visits = [visit for process in parts for batch in process[span] for visit in batch]
            assert len(visits) == len(set(visits)) == 16
            made.append(set(visits))
        return made

    @pytest.mark.parametrize(("processes", "limit"), [(1, 4), (2, 0), (4, 2)])
    def test_the_global_batch_does_not_depend_on_the_processes(self, processes: int, limit: int) -> None:
        one = make_plan(recipe(), 70, 1, 1)
        many = make_plan(recipe(f"engine.max_clips={limit}"), 70, 1, processes)
        assert self.global_batches(one, 0) == self.global_batches(many, 0)

    def test_going_on_is_the_rest_of_the_epoch(self) -> None:
        plan = make_plan(recipe("engine.max_clips=4"), 70, 1, 2)
        for steps in (0, 1, 3):
            rest = self.batches(plan, 4 + steps)
            assert [part[steps * plan.accumulation :] for part in self.batches(plan, 4)] == rest
        assert {visit.epoch for batch in self.batches(plan, 5)[0] for visit in batch} == {1}
        assert self.global_batches(plan, 0) != self.global_batches(plan, 4)

    def test_repeated_videos_are_drawn_anew(self) -> None:
        plan = make_plan(recipe("augmentation.repeats=2"), 32, 1, 2)
        for batch in self.global_batches(plan, 4, repeats=2):
            assert len({visit.index for visit in batch}) == 8
            assert {visit.epoch for visit in batch} == {2, 3}  # epoch 1: its two draws

    @pytest.mark.parametrize("processes", [1, 2, 3])
    @pytest.mark.parametrize("clips", [1, 7, 12, 13])
    def test_validation_sees_each_clip_once(self, processes: int, clips: int) -> None:
        parts = [list(_ValBatches(clips, 2, Rank(rank, processes))) for rank in range(processes)]
        assert len({len(part) for part in parts}) == 1
        assert sorted(visit.index for part in parts for batch in part for visit in batch) == list(range(clips))


class TestAugmentation:
    def test_recipe_keys_choose_the_steps(self) -> None:
        spec = InputSpec(height=48, width=48)
        plain = recipe("augmentation.colour=0.3", "augmentation.rand_augment=2").augmentation
        steps = {type(step).__name__: step for step in _train_transform(plain, spec, ("a", "b")).steps}
        assert vars(steps["ColourJitter"]) == vars(ColourJitter(0.3, 0.3, 0.3, hue=0.0))
        assert vars(steps["RandAugment"]) == {**vars(RandAugment(2, 9.0)), "operations": ["standard"]}

        released = recipe(
            "augmentation.colour=0.3",
            "augmentation.colour_probability=0.7",
            "augmentation.colour_kind=released",
            "augmentation.rand_augment=1",
            "augmentation.rand_augment_magnitude=12",
            "augmentation.rand_augment_probability=0.25",
            "augmentation.rand_augment_operations=[Invert,rotate]",
            "augmentation.rand_augment_channels=BGR",
        ).augmentation
        steps = {type(step).__name__: step for step in _train_transform(released, spec, ("a", "b")).steps}
        assert vars(steps["ReleasedColourJitter"]) == {"amount": 0.3, "probability": 0.7}
        augment = RandAugment(1, 12.0, probability=0.25, operations=["Invert", "rotate"], channels="BGR")
        assert vars(steps["RandAugment"]) == vars(augment)

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("colour_kind=relaesed", "colour_kind .relaesed. must be standard or released"),
            ("colour_probability=2", r"colour_probability \(2.0\) must be in \[0, 1\]"),
            (
                "rand_augment_operations=[Rotat]",
                "must be known: RandAugment has no operation 'Rotat'",
            ),
            ("rand_augment_operations=[]", "rand_augment_operations .* at least one"),
            ("rand_augment_probability=-1", r"rand_augment_probability \(-1.0\) must be in \[0, 1\]"),
            ("rand_augment_channels=GBR", "rand_augment_channels .GBR. must be RGB or BGR"),
        ],
    )
    def test_wrong_keys_are_named(self, override: str, message: str) -> None:
        with pytest.raises(RecipeError, match=message):
            recipe(f"augmentation.{override}")
