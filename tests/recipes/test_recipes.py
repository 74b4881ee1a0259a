"""Every recipe of the package: it loads, its model can be built, and its row says what the code computes."""

import hashlib
import json
import re
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data.motion import MotionBenchmark
from motionformer.errors import RecipeError
from motionformer.models.config import ModelConfig
from motionformer.models.costs import paper_macs
from motionformer.models.motionformer import Motionformer
from motionformer.runs import _flatten
from motionformer.training import families
from motionformer.training.families import find_row, recipe_rows
from motionformer.training.model import build_config
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.sources import _rand_augment, open_sources
from motionformer.video.transforms import RandAugment, eval_transform
from motionformer.weights.released import RELEASED
from tests.parity_files import PARITY

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = recipe_rows()
HERE = Path(__file__).parent
OFFICIAL: dict[str, dict[str, Any]] = json.loads((PARITY / "released_training.json").read_text())["official"]
NUM_CLASSES: dict[str, int | dict[str, int]] = {
    "k400": 400,
    "k600": 600,
    "ssv2": 174,
    "epic": {"verb": 97, "noun": 300},
    "motion": 8,
}


@cache
def load(name: str) -> tuple[Recipe, ModelConfig]:
    recipe = load_recipe(name)
    return recipe, build_config(recipe, NUM_CLASSES[name.partition("/")[0]])


def test_there_is_one_for_every_model_and_data_set() -> None:
    for dataset in ("k400", "k600", "ssv2", "epic"):
        assert {f"{dataset}/{kind}" for kind in ("joint", "divided", "base", "hr", "l")} <= RECIPES.keys()
    for dataset in ("k400", "ssv2"):
        rows = " ".join(row.paper for row in recipe_rows(dataset).values())
        assert {"T2", "T3a", "T3b", "T3c", "T3d", "T4", "T6", "A1", "A2"} <= set(re.findall(r"[TA]\d[a-d]?", rows))


@pytest.mark.parametrize("name", RECIPES)
def test_builds_and_says_so(name: str) -> None:
    recipe, config = load(name)
    assert recipe.name == name  # so names are unique, and a run's folder is found by its recipe's name
    row = RECIPES[name]
    assert row.cost == f"{paper_macs(config) / 1e9:.{len(row.cost.partition('.')[2])}f}"
    assert row.command.startswith(f"motionformer train {name}")
    assert (config.input.frames, config.input.height) == tuple(map(int, re.findall(r"^\d+|\d+(?= px)", row.clip)))
    assert ("segments" if "segment" in row.clip else "stride") == config.input.sampling
    assert f" at stride {config.input.stride} of" in row.clip or config.input.sampling == "segments"
    assert (config.input.views, config.input.crops) == (recipe.test.views, recipe.test.crops)


def test_every_different_model_is_built() -> None:
    """Recipes whose models differ only in how clips are cut are built once."""
    clip = {"sampling": "stride", "stride": 1, "fps": 30.0, "views": 1, "crops": 1}
    configs = {repr(replace(config, input=replace(config.input, **clip))): config for _, config in map(load, RECIPES)}
    with torch.device("meta"):
        for config in configs.values():
            assert Motionformer(config).config == config


@pytest.mark.parametrize("name", [name for name in RECIPES if load(name)[0].model.init_from])
def test_the_start_exists_and_is_of_the_same_kind(name: str) -> None:
    """Image weights for Kinetics; elsewhere the released model, or our own run of a recipe, of the same clip size."""
    recipe, config = load(name)
    start = recipe.model.init_from
    if start in RELEASED:
        released = RELEASED[start]
        kind = "trajectory" if released.kind == "motionformer" else released.kind
        assert (released.dataset, kind, released.frames) == ("k400", config.attention, config.input.frames)
        assert released.size == config.input.height
        assert config.attention != "trajectory" or not config.project_values
    elif start.startswith("runs/"):
        source = load(start.removeprefix("runs/").removesuffix("/model"))[1]
        same = ("dim", "depth", "attention", "kernel", "time", "positions", "tubelet", "project_values")
        assert [getattr(source, field) for field in same] == [getattr(config, field) for field in same]
    else:
        assert re.fullmatch(r"google/vit-(base|large)-patch16-224", start)
        assert name.startswith(("k400/", "k600/"))


def row_of(file: str) -> str:
    """Our recipe of one of the authors' configuration files."""
    folder, _, kind = file.partition("/")
    if kind.startswith("motionformer"):
        kind = "hr" if "336" in kind else "l" if "32x3" in kind else "base"
    return f"{'epic' if folder == 'EK' else folder.lower()}/{kind.partition('_')[0]}"


@pytest.mark.parametrize("file", OFFICIAL)
def test_a_row_runs_what_the_authors_ran(file: str) -> None:
    """Every value of their 20 files. What still differs is in the table of docs, and here: the stride of K600 HR."""
    theirs, (recipe, config) = OFFICIAL[file], load(row_of(file))
    spec, part, optimiser = config.input, recipe.augmentation, recipe.optimiser
    assert (spec.protocol, spec.frames, spec.height, spec.width) == (
        "released",
        theirs["frames"],
        theirs["size"],
        theirs["size"],
    )
    assert spec.sampling == ("segments" if theirs["stride"] is None else "stride")
    stride = 8 if file == "K600/motionformer_336_16x4" else theirs["stride"]
    assert stride in (spec.stride, None)
    assert (spec.channels, [*spec.mean], [*spec.std]) == (
        theirs["channels_at_the_model"],
        theirs["mean"],
        theirs["std"],
    )
    assert (spec.views, spec.crops) == (recipe.test.views, recipe.test.crops) == (theirs["views"], theirs["crops"])

    assert (part.jitter, part.inverse_jitter, part.flip) == (theirs["jitter"], theirs["inverse_jitter"], theirs["flip"])
    assert part.crop_area == (theirs["random_resized_crop"] or [])
    assert part.colour == (theirs["colour_jitter"] or 0)
    assert not part.colour or (part.colour_probability, part.colour_kind) == (
        theirs["colour_probability"],
        "released",
    )
    assert (part.erasing, part.mixup, part.cutmix, part.repeats, part.flip_by_name) == (0, 0, 0, 1, False)
    assert bool(part.rand_augment) == (theirs["rand_augment"] is not None)
    augment = _rand_augment(part)
    assert augment is None or vars(augment) == {**vars(RandAugment.released("BGR")), "operations": ["released"]}

    # int(batch / 8) clips on each of 64 GPUs: 256 for 32, 64 for 12
    assert recipe.global_batch == optimiser.lr_batch == theirs["batch_size_in_yaml"] // 8 * 64
    assert (optimiser.lr, optimiser.weight_decay) == (theirs["base_lr"], theirs["weight_decay"])
    assert (recipe.schedule.kind, [0.0, *recipe.schedule.milestones]) == ("step", theirs["steps"])
    assert (recipe.epochs, recipe.label_smoothing) == (theirs["epochs"], theirs["label_smoothing"])
    assert (config.attention, config.drop_path) == (theirs["attention"], theirs["drop_path"])
    assert config.drop_path_time == (config.attention != "divided")
    assert not (config.attention == "trajectory" and config.project_values)


def test_the_docs_list_what_remains_different_row_by_row() -> None:
    page = "".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").glob("fidelity*.md")))
    for file, theirs in OFFICIAL.items():
        start = file.startswith(("SSV2", "EK"))
        found = [
            "precision",
            *(["start"] if start else []),
            *(["frame 0"] if theirs["rand_augment"] else []),
            *(["stride"] if theirs["stride"] not in (load(row_of(file))[1].input.stride, None) else []),
        ]
        row = row_of(file)
        assert f"| `{file}` | [`{row}`](../recipes/{row.partition('/')[0]}.yaml) | {', '.join(found)} |" in page
        assert load(row)[0].engine.precision == "bf16-mixed"
        assert load(row)[0].model.init_from.startswith("k400_" if start else "google/vit-base-patch16-224")


def test_an_ablation_is_trained_as_the_row_it_varies() -> None:
    rows = {row_of(file) for file in OFFICIAL} | {"k400/h"}
    ablations = [name for name in RECIPES if name not in rows and not name.startswith("motion/")]
    assert len(ablations) == 48
    for name in ablations:
        recipe, config = load(name)
        kind = "base" if config.attention == "trajectory" else config.attention
        base, its_config = load(f"{name.partition('/')[0]}/{kind}")
        for key in ("augmentation", "optimiser", "schedule", "global_batch", "epochs", "label_smoothing"):
            assert getattr(recipe, key) == getattr(base, key), (name, key)
        assert config.input.protocol == "released"
        assert config.drop_path_time == its_config.drop_path_time
        assert config.project_values == its_config.project_values or config.time == "average"


def test_recipes_that_are_compared_differ_in_nothing_else() -> None:
    """Joint, divided, Avg_T … on the motion benchmark: same data, steps and rates."""
    for level in ("easy", "hard"):
        names = [name for name in RECIPES if name.startswith(f"motion/{level}")]
        seen = {repr({**load(name)[0].to_dict(), "name": "", "model": ""}) for name in names}
        assert len(names) == 15
        assert len(seen) == 1


def recipe_keys(kind: type, prefix: str = "") -> list[str]:
    keys = []
    for field in fields(kind):
        inner = field.default_factory if callable(field.default_factory) else None
        nested = inner is not None and is_dataclass(inner)
        keys += recipe_keys(inner, f"{prefix}{field.name}.") if nested else [prefix + field.name]  # type: ignore[arg-type]
    return keys


@pytest.mark.parametrize("key", recipe_keys(Recipe))
def test_every_key_is_explained(key: str) -> None:
    assert re.search(rf"^\| `{re.escape(key)}` \| .{{15,}} \|$", DOC, re.MULTILINE), f"docs/recipes.md lacks {key}"


def test_the_tables_of_the_docs_are_those_of_the_rows() -> None:
    made = CliRunner().invoke(app, ["recipes", "--markdown"]).output
    assert len(re.findall(r"^\| `\w+/", made, re.MULTILINE)) == len(RECIPES)
    assert DOC.endswith(f"from the rows.\n\n{made}"), "put `motionformer recipes --markdown` under All recipes"


def settled(recipe: Recipe) -> dict[str, Any]:
    """What a recipe sets beyond the defaults, by key of version 0.1: a key that is added later changes nothing."""
    default = _flatten(Recipe("").to_dict())
    changed = {key: value for key, value in _flatten(recipe.to_dict()).items() if default.get(key) != value}
    before = {"model.init_from": "model.start"}
    words = {("data.order", "stratified"): "turns"}
    old = {before.get(key, key): words.get((key, str(value)), value) for key, value in changed.items()}
    return dict(sorted(old.items()))


def of_0_1(settled: dict[str, Any]) -> dict[str, Any]:
    """The same under the keys of 0.1, which are still read."""
    return {key.replace("model.changes.kernel", "model.changes.attend"): value for key, value in settled.items()}


def test_a_row_is_what_its_file_was() -> None:
    """Before families each recipe was a file of its own. Run folders compare these values, so they stay."""
    for name, values in json.loads((HERE / "files.json").read_text()).items():
        assert of_0_1(settled(load(name)[0])) == values
    digests = json.loads((HERE / "digests.json").read_text())
    assert len(digests) == 99
    for name, digest in digests.items():
        text = json.dumps(of_0_1(settled(load(name)[0])), sort_keys=True)
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest, name


def test_a_recipe_is_found_by_name_and_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    easy = load_recipe("motion/easy")
    for name in ("recipes/motion/easy.yaml", "motion/easy.yaml", ROOT / "recipes" / "motion" / "easy.yaml"):
        assert load_recipe(name) == easy
    Path("motion").mkdir()
    Path("motion/easy").write_text("name: mine", encoding="utf-8")
    assert load_recipe("motion/easy") == Recipe("mine")  # a file of yours comes first


def test_a_recipe_that_is_printed_is_a_file(tmp_path: Path) -> None:
    for name in ("k600/hr", "ssv2/a1-divided-stride-3", "motion/easy"):
        mine = tmp_path / "mine.yaml"
        mine.write_text(find_row(name).header() + load(name)[0].to_yaml(), encoding="utf-8")
        assert load_recipe(mine) == load(name)[0]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("motion/esay", "Did you mean motion/easy"),
        ("motion", "a family of recipes: motion/easy"),
        ("/elsewhere/recipes/k400/base.yaml", "no such file"),  # not ours in its place
        ("something-else.yaml", "in epic/, k400/, k600/, motion/, ssv2/"),
        (ROOT / "recipes" / "k400.yaml", "is a family of recipes, not one"),
    ],
)
def test_a_name_that_is_none(name: str | Path, hint: str) -> None:
    with pytest.raises(RecipeError, match=hint):
        load_recipe(name)


FAMILY = """
dataset: Mine
note: of all
settings: {epochs: 3, model: {variant: joint-tiny, changes: {kernel: {kind: nystrom, num_prototypes: 9}}}}
rows:
  one: {what: a, paper: none, expected: none, gmacs: 1, note: of one}
  two: {like: one, what: b, paper: none, expected: none, gmacs: 2, ran: all, note: of two, overrides: OVERRIDES}
"""


def test_a_row_overrides_the_row_it_is_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = "{epochs: 4, model.changes.kernel: {num_prototypes: 5}, model.changes.input.stride: 2}"
    (tmp_path / "mine.yaml").write_text(FAMILY.replace("OVERRIDES", changes), encoding="utf-8")
    monkeypatch.setattr(families, "_FOLDERS", (tmp_path / "none", tmp_path))
    rows = recipe_rows("mine")
    one, two = load_recipe("mine/one"), load_recipe("mine/two", ["seed=3"])
    assert (one.name, one.epochs, two.epochs, two.seed) == ("mine/one", 3, 4, 3)
    assert one.model.changes == {"kernel": {"kind": "nystrom", "num_prototypes": 9}}
    assert two.model.changes == {"kernel": {"kind": "nystrom", "num_prototypes": 5}, "input": {"stride": 2}}
    assert two.model.variant == "joint-tiny"
    assert rows["mine/two"].notes == ("of all", "of one", "of two")
    assert (rows["mine/one"].ran[:7], rows["mine/two"].ran) == ("nothing", "all")


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [
        ("like: one", "like: three", "row 'two' is like 'three', which is not a row above it"),
        ("like: one", "lke: one", "row 'two' has lke, which it cannot have"),
        ("gmacs: 2, ", "", "row 'two' lacks gmacs"),
        ("gmacs: 2, ", "gmacs: many, ", r"row 'two': gmacs \('many'\) must be a number"),
        ("dataset: Mine", "datset: Mine", "a family lacks dataset and has datset"),
        ("  two:", "  one:", "is not YAML.*duplicate key one"),
        ("{epochs: 4}", "{epohcs: 4}", "mine/two: Key 'epohcs' not in 'Recipe'"),
        ("{epochs: 4}", "{epochs.of: 4}", "row 'two' overrides epochs.of, but epochs is not a group of keys"),
    ],
)
def test_a_family_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, hint: str
) -> None:
    text = FAMILY.replace("OVERRIDES", "{epochs: 4}")
    assert before in text
    (tmp_path / "mine.yaml").write_text(text.replace(before, after), encoding="utf-8")
    monkeypatch.setattr(families, "_FOLDERS", (tmp_path,))
    with pytest.raises(RecipeError, match=f"(?s){hint}"):
        load_recipe("mine/two")


@pytest.mark.parametrize("stride", [1, 3])
def test_a_stride_of_the_motion_benchmark_leaves_frames_out(stride: int) -> None:
    """Larger strides show the same scenes moving faster."""
    recipe = load_recipe("motion/easy", [f"model.changes.input.stride={stride}"])
    spec = build_config(recipe, 8).input
    items = open_sources(recipe)[1].validation_items(recipe, spec)
    every = MotionBenchmark("easy", "val", 512, frames=7 * stride + 1, size=48)[5].frames
    assert torch.equal(items[5]["clip"], eval_transform(spec)(every[::stride]))
    assert items[5]["clip"].shape == (3, 8, 48, 48)
