"""`motionformer compare`: two results of the same videos side by side."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from motionformer.inference import Comparison
    from motionformer.inference.comparison import ClassChange

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
    csv: Annotated[Path | None, typer.Option(help="Write a line a class here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    from rich.console import Console

    from motionformer.inference import Results
    from motionformer.inference import compare as compare_results

    comparison = compare_results(Results.load(a), Results.load(b), task)
    if csv is not None:
        comparison.write_csv(csv)
    if as_json:
        print(json.dumps(comparison.to_dict(), indent=1))
    else:
        _print(comparison, Console(), show)


def _print(found: "Comparison", console: "Console", show: int) -> None:
    from rich.table import Table

    from motionformer.inference.metrics import show_interval, wilson

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(f"A: {found.a}")
    say(f"B: {found.b}")
    table = Table(
        "top-1, %",
        title=f"{found.videos} videos" + ("" if found.task == "class" else f", {found.task}"),
        title_justify="left",
    )
    for name in ("A", "B", "gain"):
        table.add_column(name, justify="right")
    gain = found.b_top1 - found.a_top1
    table.add_row("all classes", _percent(found.a_top1), _percent(found.b_top1), _signed(gain))
    sides = [
        show_interval(*wilson(round(share * found.videos), found.videos)) for share in (found.a_top1, found.b_top1)
    ]
    low, high = found.interval
    table.add_row("95 % confidence interval", *sides, f"{_signed(low)} to {_signed(high)}")
    gained = [one for one in found.classes if one.gain > 0]
    lost = [one for one in reversed(found.classes) if one.gain < 0]
    _add(table, f"gained: {len(gained)} classes", gained[:show])
    _add(table, f"lost: {len(lost)} classes", lost[:show])
    console.print(table)
    say(
        f"right in both {found.both_right}, in A alone {found.a_right}, in B alone {found.b_right},"
        f" in neither {found.neither}; McNemar's exact p = {found.p_value:.2g}"
    )
    for side, count in (("A", found.only_in_a), ("B", found.only_in_b)):
        if count:
            say(f"note: {count} videos are in {side} only and were left out")
    for note in found.notes:
        say(f"note: {note}")


def _add(table: "object", title: str, changes: "list[ClassChange]") -> None:
    from rich.markup import escape
    from rich.table import Table

    assert isinstance(table, Table)
    table.add_section()
    table.add_row(f"[bold]{title}[/bold]", "", "", "")
    for one in changes:
        sides = (_with_interval(share, one.videos) for share in (one.a, one.b))
        table.add_row(f"{escape(one.name)} ({one.videos})", *sides, _signed(one.gain))


def _with_interval(share: float, videos: int) -> str:
    from motionformer.inference.metrics import show_interval, wilson

    return f"{_percent(share)} ({show_interval(*wilson(round(share * videos), videos))})"


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}"
