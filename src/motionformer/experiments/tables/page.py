"""The page of all tables: the paper's figure, ours at this scale, what was run. Made from outcomes, never by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from motionformer.errors import RecipeError
from motionformer.experiments.tables.experiments import EXPERIMENTS, Experiment, Row
from motionformer.experiments.tables.outcome import Line, Outcome, by_group, read_outcome
from motionformer.training.families import find_row

DATA = {"k400": "K400", "ssv2": "SSv2"}
HEAD = """# The paper's tables, and what was run of them

Made by `motionformer reproduce --page docs` from the outcomes in `docs/results`; not written by hand. *Paper* is
the authors' figure, top-1 on the data sets named, as far as it could be confirmed. *Ours* is the same comparison with a
tiny model on the [motion benchmark](motion-benchmark.md) (its `hard` level, unless said) or on a folder of real
videos, in the unit named: the same comparison, not the same numbers. Mean ± deviation over seeds, then every seed.
What they do and do not show is in [results](results.md).
"""


def write_page(docs: Path) -> Path:
    """`docs/reproduction.md`, from `docs/results/*.json`."""
    outcomes = read_outcomes(docs / "results")
    if not outcomes:
        raise RecipeError(f"there are no outcomes (ID-cpu.json) in {docs / 'results'} to make the page of.")
    page = docs / "reproduction.md"
    page.write_text(make_page(outcomes), encoding="utf-8")
    return page


def read_outcomes(folder: Path) -> list[Outcome]:
    """Outcomes of whole tables at the scale of a CPU, those on what is built in before others."""
    outcomes = [read_outcome(file) for file in folder.glob("*-cpu*.json")]
    whole = [outcome for outcome in outcomes if not outcome.rows]
    return sorted(whole, key=lambda outcome: (outcome.id, outcome.data))


def make_page(outcomes: Sequence[Outcome]) -> str:
    """The text of the page."""
    found = {name: [outcome for outcome in outcomes if outcome.id == name] for name in EXPERIMENTS}
    rows = [_overview(experiment, found[name]) for name, experiment in EXPERIMENTS.items()]
    table = ["| | what | status | command |", "|---|---|---|---|", *rows]
    sections = [_section(experiment, found[name]) for name, experiment in EXPERIMENTS.items()]
    return HEAD + "\n" + "\n".join(table) + "\n" + "".join(sections)


def _overview(experiment: Experiment, outcomes: Sequence[Outcome]) -> str:
    name = experiment.id
    if outcomes:
        status, scale = "run small: " + ", ".join(outcome.data or "built-in data" for outcome in outcomes), ""
    else:
        can_run = experiment.cpu or experiment.here
        status, scale = ("not run yet", "") if can_run else ("recipes; needs data and GPUs", " --scale paper")
    return f"| [{experiment.name}](#{name}) | {experiment.title} | {status} | `motionformer reproduce {name}{scale}` |"


def _section(experiment: Experiment, outcomes: Sequence[Outcome]) -> str:
    title = f"\n## {experiment.name}\n\n**{experiment.title}.** "
    name, needs = experiment.id, experiment.needs
    if not experiment.cpu and not experiment.here:
        status = f"Recipes only: the original needs {needs} and GPUs; nothing of it was run.\n\n"
        return title + status + _recipes(experiment.paper)
    original = f"The original (`motionformer reproduce {name} --scale paper`) needs {needs} and GPUs."
    if name in ("t3m", "a4", "a5"):
        original = f"The original needs: {needs}."
    if experiment.published:
        original += f" The paper has {experiment.published}."
    ran = [f"`{outcome.command}`: {outcome.about}.\n" for outcome in outcomes]
    status = "\n".join(ran or [f"Not run yet: `motionformer reproduce {name}`.\n"]) + f"\n{original}\n\n"
    tables = "\n".join(map(_studied, outcomes)) if experiment.here else _table(experiment.cpu, outcomes)
    if not experiment.here and not any(row.published for row in experiment.cpu):  # ours are other rows
        tables += f"\n{_recipes(experiment.paper)}"
    return title + status + tables + "".join(map(_picture, outcomes))


def _recipes(rows: Sequence[Row]) -> str:
    body = [f"| {row.label} | {_expected(row.recipe)} | `motionformer train {row.recipe}` |" for row in rows]
    return "\n".join(["| | paper | command |", "|---|---|---|", *body]) + "\n"


def _table(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> str:
    """The paper's figure of every row beside ours on each data."""
    columns = [outcome.data or "motion benchmark" for outcome in outcomes] or ["ours"]
    found: list[Mapping[str, Line]] = [{line.label: line for line in outcome.lines} for outcome in outcomes] or [{}]
    head = ["| | paper | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    body = [
        f"| {row.label} | {_published(row)} | " + " | ".join(_ours(lines.get(row.label)) for lines in found) + " |"
        for row in rows
    ]
    return "\n".join([*head, *body]) + "\n"


def _studied(outcome: Outcome) -> str:
    """A table for each group of an outcome that is not made of recipes."""
    tables = []
    for group, lines in by_group(outcome).items():
        unit = ", ".join(filter(None, (outcome.data, outcome.unit(group))))
        has_paper = any(line.paper for line in lines)
        head = [f"| | paper | {unit} |", "|---|---|---|"] if has_paper else [f"| | {unit} |", "|---|---|"]
        body = [
            f"| {line.label} | {line.paper or '–'} | {_ours(line)} |"
            if has_paper
            else f"| {line.label} | {_ours(line)} |"
            for line in lines
        ]
        tables.append("\n".join([*head, *body]) + "\n")
    return "\n".join(tables)


def picture_name(outcome: Outcome) -> str:
    """Of the picture in `docs/figures`."""
    return "-".join(filter(None, ("results", outcome.id, outcome.data))) + ".png"


def _picture(outcome: Outcome) -> str:
    what = f"{EXPERIMENTS[outcome.id].name}, {outcome.data or 'built-in data'}"
    return f"\n![{what}](figures/{picture_name(outcome)})\n"


def _ours(line: Line | None) -> str:
    if line is None:
        return "not run"
    if line.std is None:
        return line.show(line.mean) + line.interval
    each = ", ".join(map(line.show, line.values))
    return f"{line.show(line.mean)} ± {line.show(line.std)} ({each})"


def _published(row: Row) -> str:
    if not row.published:
        return "–"
    said = {name: _expected(f"{folder}/{row.published}") for folder, name in DATA.items()}
    return said["K400"] if len(set(said.values())) == 1 else "; ".join(f"{name} {text}" for name, text in said.items())


def _expected(recipe: str) -> str:
    """What a recipe says is to be expected, without its source."""
    return find_row(recipe).expected.partition(" (")[0]
