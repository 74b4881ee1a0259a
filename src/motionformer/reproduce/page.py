"""The page of all tables: the paper's figure, ours at this scale, what was run. Made from outcomes, never by hand."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from motionformer.reproduce.experiments import EXPERIMENTS, Experiment, Row
from motionformer.reproduce.table import Line, Outcome
from motionformer.training.shipped import shipped_recipes

DATA = {"k400": "K400", "ssv2": "SSv2"}
HEAD = """# The paper's tables, and what was run of them

Made by `motionformer reproduce --page docs` from the outcomes in `docs/results`; not written by hand. *Paper* is
the authors' figure, top-1 on the data sets named, as far as it could be confirmed. *Ours* is top-1 in % on the `hard`
level of the [motion benchmark](motion-benchmark.md) with a tiny model (mean ± deviation over seeds, then every seed):
the same comparison, not the same numbers. What they do and do not show is in [results](results.md).
"""


def write_page(docs: Path) -> Path:
    """`docs/reproduction.md`, from `docs/results/*.json`."""
    page = docs / "reproduction.md"
    page.write_text(make_page(read_outcomes(docs / "results")), encoding="utf-8")
    return page


def read_outcomes(folder: Path) -> dict[str, Outcome]:
    """Outcomes at the scale of a CPU, by experiment."""
    files = sorted(folder.glob("*-cpu.json"))
    outcomes = [Outcome.from_dict(json.loads(file.read_text(encoding="utf-8"))) for file in files]
    return {outcome.id: outcome for outcome in outcomes}


def make_page(outcomes: Mapping[str, Outcome]) -> str:
    """The text of the page."""
    return HEAD + "".join(_section(experiment, outcomes.get(name)) for name, experiment in EXPERIMENTS.items())


def _section(experiment: Experiment, outcome: Outcome | None) -> str:
    title, needs = f"\n## {experiment.id.upper()}: {experiment.title}\n\n", experiment.needs
    if experiment.cpu:
        return title + _status(experiment, outcome) + "\n\n" + _table(experiment.cpu, outcome)
    if experiment.command:
        return title + f"Not a matter of training here: `{experiment.command}`. The original needs {needs}.\n"
    status = f"Recipes only: the original needs {needs} and GPUs; nothing of it was run.\n\n"
    rows = [
        f"| {row.label} | {_expected(row.recipe)} | `motionformer train {row.recipe}` |" for row in experiment.paper
    ]
    return title + status + "\n".join(["| | paper | command |", "|---|---|---|", *rows]) + "\n"


def _status(experiment: Experiment, outcome: Outcome | None) -> str:
    name, needs = experiment.id, experiment.needs
    original = f"The original (`motionformer reproduce {name} --scale paper`) needs {needs} and GPUs."
    if outcome is None:
        return f"Not run yet: `motionformer reproduce {name}`. {original}"
    return f"`{outcome.command}`: {outcome.steps} steps, {outcome.clips} held-out clips. {original}"


def _table(rows: tuple[Row, ...], outcome: Outcome | None) -> str:
    lines = {} if outcome is None else {line.label: line for line in outcome.lines}
    body = [f"| {row.label} | {_published(row)} | {_ours(lines.get(row.label))} |" for row in rows]
    return "\n".join(["| | paper | ours |", "|---|---|---|", *body]) + "\n"


def _ours(line: Line | None) -> str:
    if line is None:
        return "not run"
    spread = "" if line.deviation is None else f" ± {line.deviation:.1f}"
    return f"{line.mean:.1f}{spread} ({', '.join(f'{value:.1f}' for value in line.values)})"


def _published(row: Row) -> str:
    if not row.published:
        return "–"
    said = {name: _expected(f"{folder}/{row.published}") for folder, name in DATA.items()}
    return said["K400"] if len(set(said.values())) == 1 else "; ".join(f"{name} {text}" for name, text in said.items())


def _expected(recipe: str) -> str:
    """What the header of a recipe says is to be expected, without its source."""
    text = shipped_recipes()[recipe].read_text(encoding="utf-8")
    found = re.search(r"^# expected: (.*?)(?=^# \w[\w ]*:)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, recipe
    return re.sub(r"\s*\n#\s*", " ", found[1]).strip().partition(" (")[0]
