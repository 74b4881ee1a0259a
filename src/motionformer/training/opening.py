"""What a user has, a folder or a list, becomes videos to learn from and videos to check with."""

from pathlib import Path

from motionformer.data import open_dataset
from motionformer.data.folders import is_frame_folder, split_folders, visible_folders
from motionformer.data.record import Annotations, Missing, shown_classes
from motionformer.data.source import recognise
from motionformer.errors import RecipeError
from motionformer.training.splits import split_by_class, split_multi_label


def open_splits(path: Path, held_out: float, seed: int, missing: Missing = "error") -> tuple[Annotations, Annotations]:
    """Training and validation videos: as the folders `train` and `val` say, or split here, class by class."""
    if not path.exists():
        raise RecipeError("no such file or folder.", path)
    kind = recognise(path)
    ready = split_folders(path) if kind == "folders" else {}
    held = next((split for split in ("val", "test") if split in ready), None)
    if path.is_dir() and kind not in ("folders", "files"):
        held = "val"
    train = open_dataset(path, kind, split=None if held is None else "train", missing=missing)
    if not train.class_names or not isinstance(train.class_names, tuple):
        raise RecipeError(
            "needs videos with one label each (class folders, or a csv of path,label) or several (path,labels).", path
        )
    _refuse_one_class(train, path)
    if held is None:
        split = split_multi_label if train.is_multi_label else split_by_class
        return split(train, held_out, seed, path if path.is_dir() else path.parent)
    val = open_dataset(path, kind, split=held, class_names=train.class_names, missing=missing)
    _refuse_unlearned(train, val, path)
    return train, val


def _refuse_one_class(annotations: Annotations, path: Path) -> None:
    if annotations.is_multi_label or len(shown_classes(annotations)) > 1:
        return
    name = annotations.label_name(annotations.records[0].label)
    inside = path / name
    folders = [folder for folder in visible_folders(inside) if not is_frame_folder(folder)] if inside.is_dir() else []
    if folders:
        what = f"{name!r}, which holds {len(folders)} folders"
        raise RecipeError(f"one class only ({what}): did you mean {inside}?", path)
    raise RecipeError(f"one class only ({name!r}): there is nothing to tell apart. Give videos of two or more.", path)


def _refuse_unlearned(train: Annotations, val: Annotations, path: Path) -> None:
    strange = sorted(shown_classes(val) - shown_classes(train))
    if strange:
        name = val.label_name(strange[0])
        raise RecipeError(f"class {name!r} has videos to check with and none to learn from: add some.", path)
