"""The recipes of the package, in families: `k400/base` is the row `base` of `recipes/k400.yaml`.

A family is the file of a data set: `settings` that its rows share, and `rows`, each with its overrides, its row of the
paper, the expected result and its cost. A row is `like` an earlier one, or like the settings alone.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from omegaconf import OmegaConf
from yaml import YAMLError

import motionformer
from motionformer.data.source import parse_motion
from motionformer.errors import RecipeError
from motionformer.logging import show_count

_PACKAGE = Path(motionformer.__file__).parent
_FOLDERS = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")
"""In a wheel, and in a checkout."""


@dataclass(frozen=True)
class RecipeRow:
    """A recipe that comes with the package.

    Args:
        name: `FAMILY/ROW`, the name of the recipe and of its run folder.
        dataset: what it is trained on.
        what: the model, in words.
        paper: the rows of the paper it stands for, as numbered in docs/recipes.md.
        expected: the expected result and who published it.
        gmacs: multiply-adds per view by the paper's convention, in units of 10⁹.
        values: the recipe; `load_recipe` fills in what it leaves to defaults.
        ran: what was run with this code.
        notes: choices worth knowing, those of the family and of the rows it is like among them.
    """

    name: str
    dataset: str
    what: str
    paper: str
    expected: str
    gmacs: float
    values: dict[str, Any]
    ran: str = "nothing; built without data (meta device)"
    notes: tuple[str, ...] = ()

    @property
    def clip(self) -> str:
        """The input clip: `16 frames at stride 4 of 224 px`."""
        spec = self.values["model"]["changes"]["input"]
        unit = "segment" if spec["sampling"] == "segments" else "frame"
        stride = "" if unit == "segment" else f" at stride {spec['stride']}"
        return f"{show_count(spec['frames'], unit)}{stride} of {spec['height']} px"

    @property
    def cost(self) -> str:
        """`gmacs` with as many digits as are recomputed in tests."""
        return f"{self.gmacs:.{1 if self.gmacs >= 1 else 4}f}"

    @property
    def command(self) -> str:
        """The command that trains it, with placeholders for its data."""
        data = self.values["data"]
        words = [f"motionformer train {self.name}"]
        if parse_motion(data["train"]) is None:
            words += [f"data.{part}={Path(data[part]).name}" for part in ("train", "val")]
            words += ["data.root=videos"] if data["root"] else []
        return " ".join(words)

    def header(self) -> str:
        """The row as comments for the top of a recipe file."""
        values = self.values
        views = show_count(values["test"]["views"] * values["test"]["crops"], "view")
        facts = {
            "row": self.paper,
            "command": self.command,
            "expected": self.expected,
            "cost": f"{self.cost} G multiply-adds per view by the paper's convention, {views} per video in the test; "
            f"{show_count(values['epochs'], 'epoch')}, {values['global_batch']} clips per step",
            "run here": self.ran,
        }
        lines = [f"{self.name}: {self.what}, {self.clip}, on {self.dataset}", ""]
        for key, text in facts.items():
            lines += wrap(f"{key + ':':<9} {text}", 110, subsequent_indent=" " * 10, break_on_hyphens=False)
        for note in self.notes:
            lines += ["", *wrap(note, 110, break_on_hyphens=False)]
        return "".join(f"# {line}".rstrip() + "\n" for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """The row without the recipe, for JSON."""
        row = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "values"}
        run = {key: self.values[key] for key in ("epochs", "global_batch")}
        return row | {"notes": list(self.notes), "clip": self.clip, "command": self.command, **run}


def recipe_rows(family: str = "") -> dict[str, RecipeRow]:
    """Every recipe that comes with the package, by name; with `family` (`k400`), those of one data set.

    Raises:
        RecipeError: there is no such family, or its file is invalid.

    Example:
        `recipe_rows("k400")["k400/base"].expected`
    """
    files = _family_files()
    if family and family not in files:
        raise RecipeError(f"no family of recipes of this name; there are {', '.join(files)}.", family)
    return {row.name: row for name in ([family] if family else files) for row in _read_family(files[name])}


def find_row(name: str | Path) -> RecipeRow:
    """The row that `name` means: `k400/base`, or its file of earlier versions, `recipes/k400/base.yaml`.

    Raises:
        RecipeError: there is none; with the names that are close.
    """
    key = _row_name(Path(name))
    family = key.partition("/")[0]
    if family in _family_files() and key in (rows := recipe_rows(family)):
        return rows[key]
    known = recipe_rows()
    close = get_close_matches(key, known, n=3, cutoff=0.6)
    inside = [other for other in known if other.startswith(f"{key}/")]
    if inside:
        hint = f"a family of recipes: {', '.join(inside)}."
    elif close:
        hint = f"no such file, and no recipe of this name. Did you mean {' or '.join(close)}?"
    else:
        groups = ", ".join(f"{other}/" for other in _family_files())
        hint = f"no such file, and no recipe of this name; those that come with the package are in {groups}."
    raise RecipeError(hint, name)


def read_mapping(file: Path) -> Any:
    """The YAML of `file` as OmegaConf has it.

    Raises:
        RecipeError: it is not there, no YAML, or has no lines `key: value`.
    """
    try:
        found: Any = OmegaConf.create(file.read_text(encoding="utf-8"))
    except AssertionError:  # of OmegaConf, for a lone number
        found = None
    except FileNotFoundError as error:
        raise RecipeError("no such recipe.", file) from error
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise RecipeError(f"is not YAML: {error}", file) from error
    if not OmegaConf.is_dict(found):
        advice = "`motionformer recipes --show motion/easy` shows one"
        raise RecipeError(f"is not a recipe, which has lines `key: value`; {advice}.", file)
    return found


def _family_files() -> dict[str, Path]:
    folder = next(filter(Path.is_dir, _FOLDERS), None)
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))} if folder else {}


def _row_name(file: Path) -> str:
    """`k400/base` of a path below the package's recipes, or below a folder `recipes`."""
    for folder in _FOLDERS:
        if file.is_absolute() and file.is_relative_to(folder):
            file = file.relative_to(folder)
    return file.as_posix().removeprefix("recipes/").removesuffix(".yaml")


@cache
def _read_family(file: Path) -> tuple[RecipeRow, ...]:
    return tuple(_make_rows(file))


_REQUIRED = ("what", "paper", "expected", "gmacs")
_KEYS = (*_REQUIRED, "like", "ran", "note", "overrides")


def _make_rows(file: Path) -> Iterator[RecipeRow]:
    family: Any = OmegaConf.to_container(read_mapping(file))
    _check_keys(family, ("dataset", "settings", "rows"), ("note",), file, "a family")
    settings: dict[str, Any] = {"": family["settings"]}
    notes: dict[str, tuple[str, ...]] = {"": (family["note"],) if "note" in family else ()}
    for name, row in family["rows"].items():
        _check_keys(row, _REQUIRED, _KEYS, file, f"row {name!r}")
        like = row.get("like", "")
        if like not in settings:
            raise RecipeError(f"row {name!r} is like {like!r}, which is not a row above it.", file)
        settings[name] = _override(settings[like], row.get("overrides", {}), file, f"row {name!r}")
        notes[name] = notes[like] + ((row["note"],) if "note" in row else ())
        if not isinstance(row["gmacs"], int | float):
            raise RecipeError(f"row {name!r}: gmacs ({row['gmacs']!r}) must be a number.", file)
        texts: dict[str, Any] = {key: str(row[key]) for key in (*_REQUIRED, "ran") if key in row}
        texts["gmacs"] = float(row["gmacs"])
        full_name = f"{file.stem}/{name}"
        values = {"name": full_name, **settings[name]}
        yield RecipeRow(full_name, family["dataset"], values=values, notes=notes[name], **texts)


def _check_keys(found: Any, required: tuple[str, ...], allowed: tuple[str, ...], file: Path, what: str) -> None:
    keys = found if isinstance(found, Mapping) else {}
    missing = [key for key in required if key not in keys]
    unknown = [key for key in keys if key not in required and key not in allowed]
    if missing or unknown:
        problems = [f"lacks {', '.join(missing)}"] * bool(missing)
        problems += [f"has {', '.join(map(str, unknown))}, which it cannot have"] * bool(unknown)
        raise RecipeError(f"{what} {' and '.join(problems)}.", file)


def _override(values: dict[str, Any], overrides: dict[str, Any], file: Path, what: str) -> dict[str, Any]:
    """`values` with dotted keys changed, as `key=value` does on the command line."""
    made = deepcopy(values)
    for key, value in overrides.items():
        *path, last = key.split(".")
        inner = made
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise RecipeError(f"{what} overrides {key}, but {part} is not a group of keys.", file)
        nested = isinstance(value, dict) and isinstance(inner.get(last), dict)
        inner[last] = _override(inner[last], value, file, what) if nested else deepcopy(value)
    return made
