"""`motionformer compare`: two results of the same videos side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import JsonOption
from motionformer.cli.report import plain_console, print_json

if TYPE_CHECKING:
    from motionformer.inference import Comparison

COMPARE_HELP = """Which classes gain and which lose from A to B, and whether the difference may be chance.

A and B are folders or npz files of `motionformer evaluate --output`. Videos are matched by name; one that could not be
read counts as wrong.

**Examples**

    motionformer compare results/joint results/trajectory

    motionformer compare results/joint results/trajectory --show 20 --csv changes.csv

    motionformer compare results/ek-a results/ek-b --task verb --json
"""


def compare(
    a: Annotated[Path, typer.Argument(help="Results to start from.")],
    b: Annotated[Path, typer.Argument(help="Results to compare with them.")],
    task: Annotated[str | None, typer.Option(help="verb, noun or action, where there are several.")] = None,
    show: Annotated[int, typer.Option(min=1, help="Classes to print on each side.")] = 5,
    csv: Annotated[Path | None, typer.Option(help="Write one line per class here.")] = None,
    as_json: JsonOption = False,
) -> None:
    from motionformer.inference import Results
    from motionformer.inference import compare as compare_results

    comparison = compare_results(Results.load(a), Results.load(b), task)
    if csv is not None:
        comparison.write_csv(csv)
    if as_json:
        print_json(comparison.to_dict())
    else:
        _print(comparison, show)


def _print(found: "Comparison", show: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from motionformer.inference.metrics import show_interval, wilson
    from motionformer.logging import show_count

    title = show_count(found.videos, "video") + ("" if found.task == "class" else f", {found.task}")
    table = Table("top-1, %", title=title, title_justify="left")
    for name in ("A", "B", "gain"):
        table.add_column(name, justify="right")
    both = (found.a_top1, found.b_top1)
    table.add_row("all classes", *map(_percent, both), _signed(found.b_top1 - found.a_top1))
    sides = [show_interval(*wilson(round(share * found.videos), found.videos)) for share in both]
    table.add_row("95 % confidence interval", *sides, " to ".join(map(_signed, found.interval)))
    gained = [one for one in found.classes if one.gain > 0]
    lost = [one for one in reversed(found.classes) if one.gain < 0]
    for heading, changes in (("gained", gained), ("lost", lost)):
        table.add_section()
        table.add_row(f"[bold]{heading}: {show_count(len(changes), 'class')}[/bold]", "", "", "")
        for one in changes[:show]:
            shares = [_with_interval(share, one.videos) for share in (one.a, one.b)]
            table.add_row(f"{escape(one.name)} ({one.videos})", *shares, _signed(one.gain))
    plain = plain_console()
    plain.print(f"A: {found.a}\nB: {found.b}")
    Console().print(table)
    plain.print(
        f"right in both {found.both_right}, in A alone {found.a_right}, in B alone {found.b_right},"
        f" in neither {found.neither}; McNemar's exact p = {found.p_value:.2g}"
    )
    for side, count in (("A", found.only_in_a), ("B", found.only_in_b)):
        if count:
            plain.print(f"note: left out, in {side} only: {show_count(count, 'video')}")
    for note in found.notes:
        plain.print(f"note: {note}")


def _with_interval(share: float, videos: int) -> str:
    from motionformer.inference.metrics import show_interval, wilson

    return f"{_percent(share)} ({show_interval(*wilson(round(share * videos), videos))})"


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}"
