"""The card of an outcome: what was run, what it gave, what the original needs; with its JSON and its picture."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

from motionformer.files import write_atomically
from motionformer.reproduce.experiments import Experiment
from motionformer.reproduce.outcome import Line, Outcome, by_group
from motionformer.reproduce.picture import draw


def to_markdown(outcome: Outcome) -> str:
    """The table for people, of bars one for each group; every seed is shown."""
    if all(line.x is not None for line in outcome.lines):
        return _table(outcome.lines, outcome.measure)
    return "\n".join(_table(lines, outcome.unit(group)) for group, lines in by_group(outcome).items())


def _table(lines: Sequence[Line], unit: str) -> str:
    seeds = sorted({seed for line in lines for seed in line.by_seed()})
    is_timed = any(line.seconds is not None for line in lines)
    has_paper = any(line.paper for line in lines)
    head = [unit, *(["paper"] if has_paper else [])]
    has_spread = len(seeds) > 1
    head += ["mean", "± s.d.", *(f"seed {seed}" for seed in seeds)] if has_spread else ["here"]
    head += ["seconds"] if is_timed else []
    rows = []
    for line in lines:
        spread = (
            [line.show(line.mean), "" if line.deviation is None else line.show(line.deviation)] if has_spread else []
        )
        seconds = [f"{line.seconds:.0f}" if line.seconds is not None else ""] if is_timed else []
        there = line.by_seed()
        values = [line.show(there[seed]) + line.interval if seed in there else "" for seed in seeds]
        rows.append([line.label, *([line.paper] if has_paper else []), *spread, *values, *seconds])
    table = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in table) + "\n"


def to_card(experiment: Experiment, outcome: Outcome) -> str:
    """What was run, what it gave, and what the original needs."""
    facts = [f"# {experiment.name}: {experiment.title}", "", f"* Command: `{outcome.command}`"]
    facts += [f"* What was run: {outcome.about}"] if outcome.about else []
    facts += [f"* The original needs: {experiment.needs}", ""]
    return "\n".join(facts) + "\n" + to_markdown(outcome)


def write_outcome(experiment: Experiment, outcome: Outcome, folder: Path) -> list[Path]:
    """`ID-SCALE[-DATA][-rows-TEXT].json`, `.md` (the card) and `.png`, each whole or not at all."""
    text = json.dumps(outcome.to_dict(), indent=1, ensure_ascii=False) + "\n"
    picture = io.BytesIO()
    draw(experiment, outcome).savefig(picture, format="png", dpi=130)
    contents: dict[str, str | bytes] = {
        ".json": text,
        ".md": to_card(experiment, outcome),
        ".png": picture.getvalue(),
    }
    files = [folder / f"{outcome.stem}{suffix}" for suffix in contents]
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in zip(files, contents.values(), strict=True):
        write_atomically(file, content)
    return files
