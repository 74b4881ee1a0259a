"""`motionformer recipes`"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import JsonOption
from motionformer.cli.report import plain_console, print_table

if TYPE_CHECKING:
    from motionformer.training.families import RecipeRow

RECIPES_HELP = """List the recipes that come with the package, with the expected result and the cost.

With FAMILY, those of one data set. A published result is the authors', not ours. `motionformer train` trains one.

**Examples**

    motionformer recipes

    motionformer recipes k400

    motionformer recipes --show k400/base > my.yaml

    motionformer recipes ssv2 --json
"""


def recipes(
    family: Annotated[str, typer.Argument(help="Only those of this data set, such as k400.", show_default="all")] = "",
    show: Annotated[
        str, typer.Option(metavar="RECIPE", help="Print this one in full, as a file that `train` takes.")
    ] = "",
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of docs/recipes.md.")] = False,
) -> None:
    import json

    from motionformer.training.families import find_row, recipe_rows
    from motionformer.training.recipe import load_recipe

    if show:
        if family or as_markdown:
            raise typer.BadParameter("prints one recipe: leave out FAMILY and --markdown.", param_hint="--show")
        row, recipe = find_row(show), load_recipe(show)
        full = json.dumps(row.to_dict() | {"recipe": recipe.to_dict()}, indent=1, ensure_ascii=False)
        print(f"{full}\n" if as_json else row.header() + recipe.to_yaml(), end="")
        return
    rows = recipe_rows(family).values()
    if as_json and as_markdown:
        raise typer.BadParameter("choose one of --json and --markdown.", param_hint="--json")
    if as_json:
        print(json.dumps([row.to_dict() for row in rows], indent=1, ensure_ascii=False))
    elif as_markdown:
        print("\n".join(_by_family(rows)), end="")
    else:
        _print_tables(rows)


def _print_tables(rows: Iterable["RecipeRow"]) -> None:
    from itertools import groupby

    for dataset, group in groupby(rows, key=lambda row: row.dataset):
        listed = [(row.name, row.expected, row.cost) for row in group]
        columns = ("recipe", "expected", "GMACs")
        print_table(columns, listed, title=dataset, right=("GMACs",), wrap=("expected",), compact=True)
        print()
    plain_console().print(
        "expected: a published result is the authors', not ours. GMACs: billions of multiply-adds per view by the "
        "paper's convention. `motionformer recipes --show RECIPE` prints one in full.",
        soft_wrap=False,
    )


def _by_family(rows: Iterable["RecipeRow"]) -> Iterable[str]:
    from itertools import groupby

    for (family, dataset), group in groupby(rows, key=lambda row: (row.name.partition("/")[0], row.dataset)):
        yield f"### [`{family}`](../recipes/{family}.yaml): {dataset}\n"
        yield "| recipe | model | clip | row | expected | G multiply-adds per view |"
        yield "|---|---|---|---|---|---|"
        for row in group:
            yield f"| `{row.name}` | {row.what} | {row.clip} | {row.paper} | {row.expected} | {row.cost} |"
        yield ""
