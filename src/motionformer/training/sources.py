"""The data of a recipe: a list or folder of videos, or the built-in motion benchmark, as a data set of items
`{clip, label, index, path}`. Does not import Lightning."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, cast

from torch.utils.data import Dataset

from motionformer.data import Annotations, ClipDataset, ClipReader, Visit, middle_sampler, open_source, train_sampler
from motionformer.data.fingerprints import made_clips, video_set
from motionformer.data.motion import LEVELS, MotionBenchmark
from motionformer.data.record import ClassNames, Label
from motionformer.data.source import Kind, MotionClips, parse_motion
from motionformer.errors import RecipeError
from motionformer.models.config import InputSpec
from motionformer.models.training_data import VideoSet
from motionformer.training.objectives import scoring_for
from motionformer.training.recipe import AugmentationPart, DataPart, Recipe
from motionformer.video.decode import check_decoder
from motionformer.video.transforms import (
    ColourJitter,
    LabelAwareFlip,
    RandAugment,
    ReleasedColourJitter,
    eval_transform,
    train_transform,
)

Items = Dataset[dict[str, Any]]


class Source(ABC):
    """A data set before the model's `InputSpec` is known. `how` it was read is a sentence for the user."""

    def __init__(self, data: Annotations | MotionClips) -> None:
        self.data: Any = data
        self.class_names: ClassNames = data.class_names
        self.how: str = data.how

    def __len__(self) -> int:
        return len(self.data)

    @property
    @abstractmethod
    def labels(self) -> Sequence[Label]:
        """Of every clip."""

    @abstractmethod
    def fingerprint(self) -> str:
        """The same for the same clips and labels, different otherwise."""

    @abstractmethod
    def video_set(self) -> tuple[VideoSet, int]:
        """Fingerprints that a model keeps of its training data, and the number of videos without one."""

    @abstractmethod
    def training_items(self, recipe: Recipe, spec: InputSpec) -> Items: ...

    @abstractmethod
    def validation_items(self, recipe: Recipe, spec: InputSpec) -> Items: ...


def open_sources(recipe: Recipe) -> tuple[Source, Source]:
    """The training and the validation data of a recipe; validation has the classes of training, and need not show
    them all."""
    data = recipe.data
    check_decoder(data.decoder)
    train = _open(data.train, data, data.train_split, data.train_clips)
    several = scoring_for(train.labels) == "sigmoid"
    names = None if isinstance(train.class_names, Mapping) else train.class_names
    if names and len(names) == 1 and not several:
        raise RecipeError(
            f"recipe {recipe.name!r}: all videos of {data.train} are of one class ({names[0]!r}). Training needs "
            "two classes or more."
        )
    val = _open(data.val, data, data.val_split, data.val_clips, names or None)
    if several != (scoring_for(val.labels) == "sigmoid"):
        one = "data.val" if several else "data.train"
        raise RecipeError(
            f"recipe {recipe.name!r}: {one} has one class per video, the other list any number (a column `labels`)."
        )
    if several and not any(val.labels):
        raise RecipeError(f"recipe {recipe.name!r}: no video of {data.val} has a class to validate on.")
    if train.class_names != val.class_names:
        raise RecipeError(
            f"recipe {recipe.name!r}: data.train and data.val have different classes "
            f"({_brief(train.class_names)}; {_brief(val.class_names)})."
        )
    if not train.class_names:
        raise RecipeError(f"recipe {recipe.name!r}: {data.train} holds videos without labels; training needs labels.")
    return train, val


def describe_data(sources: tuple[Source, Source]) -> dict[str, Any]:
    """Training and validation data in plain values: for the checkpoints and the card of a run."""
    parts = {
        name: {"how": source.how, "clips": len(source), "fingerprint": source.fingerprint()}
        for name, source in zip(("train", "val"), sources, strict=True)
    }
    names = sources[0].class_names
    classes = {task: list(of) for task, of in names.items()} if isinstance(names, Mapping) else list(names)
    return {**parts, "classes": classes}


class VideoSource(Source):
    """Videos on disk."""

    data: Annotations

    @property
    def labels(self) -> Sequence[Label]:
        return [record.label for record in self.data]

    def fingerprint(self) -> str:
        """Of paths, times, labels and classes; not of the videos' bytes, which would mean reading them all.

        Paths are relative to the common folder, so that videos may move.
        """
        base = os.path.commonpath({r.path.parent.absolute() for r in self.data})
        rows = [[os.path.relpath(r.path, base), r.start, r.end, r.fps, _plain(r.label)] for r in self.data]
        return _digest([rows, _plain(self.class_names)])

    def video_set(self) -> tuple[VideoSet, int]:
        return video_set(self.data.records)

    def training_items(self, recipe: Recipe, spec: InputSpec) -> Items:
        _check_jitter(recipe, spec)
        transform = _train_transform(recipe.augmentation, spec, self.class_names)
        reader = ClipReader(spec, sampler=train_sampler(spec), transforms=(transform,))
        return ClipDataset(self.data, reader, seed=recipe.seed)

    def validation_items(self, recipe: Recipe, spec: InputSpec) -> Items:
        """One clip from the middle of each video, centre crop: deterministic."""
        reader = ClipReader(spec, sampler=middle_sampler(spec), crops=("centre",))
        return ClipDataset(self.data, reader)


class _MotionSource(Source):
    """The built-in benchmark. Its clips depend on level, split and index only; `recipe.seed` changes none of them."""

    data: MotionClips

    @property
    def labels(self) -> Sequence[Label]:
        return [index % len(self.class_names) for index in range(len(self))]

    def fingerprint(self) -> str:
        return _digest([asdict(LEVELS[self.data.level]), self.data.split, len(self)])

    def video_set(self) -> tuple[VideoSet, int]:
        made = made_clips(self.data.level, self.data.split, self.data.seed)
        return VideoSet.of([(made, (0.0, float(len(self))))]), 0

    def training_items(self, recipe: Recipe, spec: InputSpec) -> Items:
        _check_no_augmentation(recipe)
        return self.validation_items(recipe, spec)

    def validation_items(self, recipe: Recipe, spec: InputSpec) -> Items:
        return _MotionItems(self.data.benchmark(spec), spec)


class _MotionItems(Dataset[dict[str, Any]]):
    """Clips of the benchmark as the items that `ClipDataset` gives, scaled for the model's `InputSpec`."""

    def __init__(self, benchmark: MotionBenchmark, spec: InputSpec) -> None:
        self.benchmark, self.transform = benchmark, eval_transform(spec)

    def __len__(self) -> int:
        return len(self.benchmark)

    def __getitem__(self, visit: Visit | int) -> dict[str, Any]:
        index = visit.index if isinstance(visit, Visit) else visit
        made = self.benchmark[index]
        name = f"{self.benchmark.split}-{index:05d}"
        return {"clip": self.transform(made.frames), "label": made.label, "index": index, "path": name}


def describe_mirroring(part: AugmentationPart, names: ClassNames) -> str:
    """The classes that a mirrored clip changes into others, by their names: a wrong pair costs accuracy silently."""
    if not part.flip:
        return "never"
    unchanged = "every class as itself (augmentation.flip=0 if left and right matter)"
    if not part.flip_by_name or isinstance(names, Mapping):
        return unchanged
    flip = LabelAwareFlip(names, part.flip)
    if flip.without_twin:
        return f"never: no class is the mirror image of {_first_four([repr(name) for name in flip.without_twin])}"
    if not flip.pairs:
        return unchanged
    others = ", others as themselves" if 2 * len(flip.pairs) < len(names) else ""
    return _first_four([f"{here} ↔ {there}" for here, there in flip.pairs]) + others


def _first_four(words: list[str]) -> str:
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def _open(where: str, data: DataPart, split: str, num_clips: int, names: tuple[str, ...] | None = None) -> Source:
    motion = parse_motion(where)
    if motion and motion.num_clips:
        raise RecipeError(f"{where}: data.train_clips and data.val_clips set the number of clips; leave it out here.")
    kind = cast(Kind, data.kind)  # `open_source` checks it
    chosen = split if motion else split or None
    source = open_source(where, kind, split=chosen, root=data.root or None, class_names=names, num_clips=num_clips)
    return _MotionSource(source) if isinstance(source, MotionClips) else VideoSource(source)


def _train_transform(part: AugmentationPart, spec: InputSpec, names: ClassNames) -> Any:
    """Classes of several tasks (verbs, nouns) have no mirrored pairs."""
    by_name = part.flip_by_name and not isinstance(names, Mapping)
    return train_transform(
        spec,
        jitter=cast(tuple[int, int], tuple(part.jitter)) if part.jitter else None,
        inverse_jitter=part.inverse_jitter,
        crop_area=cast(tuple[float, float], tuple(part.crop_area)) if part.crop_area else None,
        flip=part.flip,
        class_names=cast(Sequence[str], names) if by_name else None,
        colour=_colour_jitter(part),
        rand_augment=_rand_augment(part),
        erasing=part.erasing,
    )


def _colour_jitter(part: AugmentationPart) -> ColourJitter | ReleasedColourJitter | None:
    if not part.colour:
        return None
    if part.colour_kind == "released":
        return ReleasedColourJitter(part.colour, part.colour_probability)
    return ColourJitter(part.colour, part.colour, part.colour, hue=0.0, probability=part.colour_probability)


def _rand_augment(part: AugmentationPart) -> RandAugment | None:
    """The released set has one sign per clip, as in the release."""
    if not part.rand_augment:
        return None
    return RandAugment(
        part.rand_augment,
        part.rand_augment_magnitude,
        probability=part.rand_augment_probability,
        operations=part.rand_augment_operations,
        same_sign=part.rand_augment_operations == ["released"],
        channels=cast(Literal["RGB", "BGR"], part.rand_augment_channels),
    )


def _check_jitter(recipe: Recipe, spec: InputSpec) -> None:
    """A crop of the model's size must fit into the smallest frame."""
    part, short = recipe.augmentation, min(spec.height, spec.width)
    if part.jitter and not part.crop_area and part.jitter[0] < short:
        raise RecipeError(
            f"recipe {recipe.name!r}: augmentation.jitter={part.jitter} makes frames smaller than the model's clips "
            f"({spec.height} × {spec.width}): begin at {short} or more, or leave it empty."
        )


def _check_no_augmentation(recipe: Recipe) -> None:
    """Generated clips are used as they are: mirroring would change the class, a crop the speed."""
    part, plain = asdict(recipe.augmentation), asdict(AugmentationPart())
    spatial = ("jitter", "inverse_jitter", "crop_area", "flip", "colour", "rand_augment", "erasing", "repeats")
    wrong = [f"augmentation.{key}" for key in spatial if part[key] != plain[key]]
    if wrong:
        raise RecipeError(
            f"recipe {recipe.name!r}: the motion benchmark generates new clips instead of augmenting; remove "
            f"{', '.join(wrong)} (mixup and cutmix work)."
        )


def _brief(names: ClassNames) -> str:
    if isinstance(names, Mapping):
        return ", ".join(f"{len(of_task)} {task}s" for task, of_task in names.items())
    return f"{len(names)}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
