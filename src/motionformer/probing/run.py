"""`probe(videos, backbone)`: features of a frozen backbone once, many heads on them, the best as a model. START HERE.

    OUTPUT/train.csv, val.csv   the split: heads are chosen and trained on the first, scored once on the second
    OUTPUT/model/               backbone and chosen head: an ordinary model
    OUTPUT/report.html, .json   how good it is, and how sure that is

Features are kept in a cache that runs share (`cache.py`); everything else is computed again in seconds.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from motionformer.data.fingerprints import video_set
from motionformer.data.lists import write_list
from motionformer.data.record import Annotations, Missing
from motionformer.errors import RecipeError
from motionformer.finetuning.options import TRAIN_LIST, VAL_LIST
from motionformer.finetuning.split import GroupBy, note_shared_files, open_splits
from motionformer.inference.scorer import Precision
from motionformer.inference.views import FileVideos
from motionformer.models import Motionformer
from motionformer.models.training_data import TrainingData, VideoSet
from motionformer.probing.cache import FeatureCache, show_bytes
from motionformer.probing.heads import KINDS, HeadKind
from motionformer.probing.report import summarise, write_report
from motionformer.probing.selection import Clips, Tried, add_curve, try_kind
from motionformer.runs import lock_folder
from motionformer.weights.checkpoint import read_checkpoint
from motionformer.weights.download import cache_folder
from motionformer.weights.image import from_image_weights, read_image_weights
from motionformer.weights.load import find_weights, is_video_model, load_model, short_name

CACHE_SIZE = 4_000_000_000
"""Bytes of features that are kept: 10,000 clips of 8 frames of 98 px with all their tokens, of a model 384 wide."""


@dataclass(frozen=True)
class ProbeResult:
    """What a probe left behind.

    Attributes:
        folder: the output folder.
        model: folder of the model, for `load_model` and `Predictor`.
        report: everything that the page shows, in plain values, as in `report.json`.
    """

    folder: Path
    model: Path
    report: dict[str, Any]


def probe(
    videos: str | Path,
    backbone: str | Path,
    output: str | Path | None = None,
    *,
    heads: Sequence[str] | None = None,
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    group_by: GroupBy = "column",
    held_out: float = 0.2,
    num_folds: int = 5,
    missing: Missing = "error",
    seed: int = 0,
    cache: str | Path | None = None,
    cache_size: int = CACHE_SIZE,
    device: str | None = None,
    precision: Precision = "32",
    batch_size: int = 8,
    num_workers: int = 0,
    quiet: bool = False,
) -> ProbeResult:
    """Train heads on a frozen backbone's features of your videos, choose one by cross-validation, and report on it.

    Args:
        videos: class folders, a folder with `train/` and `val/` of them, or a csv of `path,label[,group]`.
        backbone: image weights (a file, a folder, `user/name` on the hub), or a video model as `load_model` takes it.
        output: folder [default: `runs/NAME-probe`].
        heads: names of `KINDS` [default: those that take seconds].
        frames: frames per clip [default: 8; the video model's].
        size: height and width of a clip [default: 7 patches on a CPU, 16 on a GPU; the video model's].
        group_by: what must not be on two sides of a split: the list's `column` group, the `folder` inside the class
            folder, or the `prefix` of the file name.
        held_out: share of each class that is scored once, at the end, where the folder has no split.
        num_folds: of the cross-validation.
        missing: `error`, or `drop` listed videos that do not exist.
        seed: of the split, the folds and the learning curve.
        cache: folder of features [default: `features` in the cache folder].
        cache_size: bytes that it may take.
        device: where features are computed [default: a GPU if there is one].
        precision: of the backbone: `32`, `bf16`, `16`.
        batch_size: clips per forward pass.
        num_workers: processes that decode.
        quiet: no progress bar.

    Returns:
        The model's folder and the report.

    Raises:
        RecipeError: videos or options that cannot be used.
        AnnotationError: a class that cannot be split.
        OutputError: the disk is full; the features so far are kept.

    Example:
        ```python
        from motionformer.probing import probe

        result = probe("videos/", "timm/vit_small_patch14_dinov2.lvd142m")
        result.report["test"]["accuracy"]
        ```
    """
    costs = _Costs()
    path = Path(videos)
    kinds = _find_kinds(heads)
    train, val = open_splits(path, held_out, seed, missing, group_by)
    if train.is_multi_label:
        raise RecipeError("its videos have any number of classes each; probe takes one each. Use finetune.", path)
    folder = Path(output) if output is not None else Path("runs") / f"{path.resolve().stem}-probe"
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    frozen = open_backbone(backbone, frames, size, device)
    with lock_folder(folder, "probing"):
        _write_lists(train, val, folder)
        every = replace(train, records=(*train.records, *val.records), split=None)
        features = FeatureCache(
            cache_folder() / "features" if cache is None else Path(cache),
            frozen,
            FileVideos(every, frozen.config.input),
            budget=cache_size,
            precision=precision,
            device=device,
            batch_size=batch_size,
            name=short_name(backbone),
        )
        _check_tokens(kinds, features)
        costs.start("features")
        features.fill(num_workers, show_progress=not quiet)
        costs.start("heads")
        data = Clips.of(every, len(train), list(features.failures), num_folds, seed)
        tried = {kind.name: try_kind(kind, features, data, seed) for kind in kinds}
        chosen = max(tried.values(), key=lambda one: (one.correct, -one.parameters))
        for name in {next(iter(tried)), chosen.kind.name}:  # the simplest one beside it, to compare with
            tried[name] = add_curve(tried[name], features, data, seed)
        chosen = tried[chosen.kind.name]
        model, scores = _finish(chosen, frozen, features, data, seed)
        model.save_pretrained(folder / "model")
        costs.start("report")
        notes = (*train.notes, *val.notes, *note_shared_files(train, val), *data.notes)
        about: dict[str, Any] = {
            "name": path.resolve().name,
            "backbone": str(backbone),
            "backbone_name": short_name(backbone),
        }
        about |= {"seed": seed, "folds": num_folds, "group_by": group_by, "costs": costs.spent}
        about |= {"cpu_seconds": sum(one["cpu"] for one in costs.spent.values())}
        report = about | summarise(data, features, tried, chosen, scores, list(dict.fromkeys(notes)))
        write_report(report, folder, features, data)
    return ProbeResult(folder, folder / "model", report)


def open_backbone(
    name: str | Path, frames: int | None, size: int | tuple[int, int] | None, device: str = "cpu"
) -> Motionformer:
    """The frozen model without a head: an image model runs on every frame, a video model as it is.

    Clips are spread over the whole video, and one is taken of each, from the centre.
    """
    checkpoint = read_checkpoint(find_weights(name))
    if is_video_model(checkpoint):
        loaded = load_model(name, num_classes=0, frames=frames, size=size, protocol="uniform")
        config = replace(loaded.config, hidden_head=False, readout="class", source=str(name), drop_path=0.0)
        state = {key: value for key, value in loaded.state_dict().items() if not key.startswith(("head.", "readout."))}
        if loaded.readout.has_norm:
            state |= {f"norm.{key}": value for key, value in loaded.readout.get_submodule("norm").state_dict().items()}
        known = loaded.training_data
    else:
        patch = read_image_weights(checkpoint.path)[0]["patch_embed.proj.weight"].shape[-1]
        loaded, _ = from_image_weights(
            checkpoint.path,
            num_classes=0,
            frames=frames or 8,
            size=size or (7 if device == "cpu" else 16) * patch,
            tubelet=1,
            attention="space",
            drop_path=0.0,
        )
        config, state, known = replace(loaded.config, source=str(name)), loaded.state_dict(), None
    spec = replace(config.input, sampling="segments", views=1, crops=1, protocol="uniform")
    model = Motionformer(replace(config, input=spec))
    model.load_state_dict(state)
    model.training_data = known or TrainingData(VideoSet(), unknown=(short_name(name),))
    return model.eval().requires_grad_(False)


def _finish(
    chosen: Tried, frozen: Motionformer, features: FeatureCache, data: Clips, seed: int
) -> tuple[Motionformer, Tensor]:
    """The backbone with the chosen head, trained on all training clips, and its scores of the held-out ones."""
    kind = chosen.kind
    model = Motionformer(kind.config(frozen.config, data.class_names)).eval()
    state = kind.solver(features, data.train, data.train_labels, data.class_names, seed).state(chosen.best)
    model.load_state_dict({**frozen.state_dict(), **state})
    with torch.inference_mode():
        if kind.is_linear:
            read = features.pooled(kind.readout, data.test)
        else:
            parts = [data.test[i : i + 32] for i in range(0, len(data.test), 32)]
            read = torch.cat([model.readout(features.tokens(part), model.config.grid) for part in parts])
        scores = model.head(read).softmax(dim=-1)
    train, left_out = video_set([data.annotations.records[i] for i in data.train])
    known = frozen.training_data
    assert known is not None
    model.training_data = TrainingData(train, left_out=left_out) | known
    return model, scores


def _find_kinds(heads: Sequence[str] | None) -> list[HeadKind]:
    if heads is None:
        return [kind for kind in KINDS.values() if kind.is_linear]
    names = list(KINDS) if list(heads) == ["all"] else list(heads)
    unknown = [name for name in names if name not in KINDS]
    if unknown or not names:
        raise RecipeError(f"there is no head {', '.join(map(repr, unknown))}; there are {', '.join(KINDS)}, and all.")
    return [KINDS[name] for name in names]


def _check_tokens(kinds: Sequence[HeadKind], features: FeatureCache) -> None:
    """Raise `RecipeError` if a head needs the tokens and they do not fit the budget."""
    learnt = [kind.name for kind in kinds if not kind.is_linear]
    if learnt and not features.has_tokens:
        needed = show_bytes(features.bytes_pooled + features.bytes_tokens, up=True)
        raise RecipeError(
            f"the head {learnt[0]} reads all tokens, and those of {len(features.source.entries)} clips do not fit the"
            f" cache: allow {needed} (--cache-size), or leave it out."
        )


def _write_lists(train: Annotations, val: Annotations, folder: Path) -> None:
    for annotations, name in ((train, TRAIN_LIST), (val, VAL_LIST)):
        new = folder / f".{name}.new"
        write_list(annotations, new)
        new.replace(folder / name)


class _Costs:
    """CPU-seconds of this process and those it has started, and seconds, by part of the work."""

    def __init__(self) -> None:
        self.spent: dict[str, dict[str, float]] = {}
        self._name, self._began = "", dict[str, float]()
        self.start("split")

    def start(self, name: str) -> None:
        """What was begun before is done."""
        now = {"cpu": sum(os.times()[:4]), "seconds": time.monotonic()}
        if self._name:
            self.spent[self._name] = {key: now[key] - self._began[key] for key in now}
        self._name, self._began = name, now
