"""The recipes that come with the package, by name: `motion/easy` is `recipes/motion/easy.yaml` of a checkout, and the
same file inside the package of an installed wheel."""

from difflib import get_close_matches
from pathlib import Path

import motionformer
from motionformer.errors import RecipeError

_PACKAGE = Path(motionformer.__file__).parent
PLACES = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")
"""Where a wheel has them, and where a checkout has them."""


def find_recipe(name: str | Path) -> Path:
    """The recipe file that `name` means: a file of yours, or a recipe that comes with the package, without `.yaml`."""
    file = Path(name).expanduser()
    if file.is_file():
        return file
    shipped = shipped_recipes()
    key = file.as_posix().removeprefix("recipes/").removesuffix(".yaml")
    if key in shipped:
        return shipped[key]
    close = get_close_matches(key, shipped, n=3, cutoff=0.6)
    inside = [other for other in shipped if other.startswith(f"{key}/")]
    if inside:
        hint = f"a folder of recipes: {', '.join(inside)}."
    elif close:
        hint = f"no such file, and no recipe of this name. Did you mean {' or '.join(close)}?"
    else:
        groups = ", ".join(sorted({other.partition("/")[0] + "/" for other in shipped}))
        hint = f"no such file, and no recipe of this name; those that come with the package are in {groups}."
    raise RecipeError(hint, name)


def shipped_recipes() -> dict[str, Path]:
    """Every recipe that comes with the package, by name."""
    for place in PLACES:
        if place.is_dir():
            files = sorted(place.rglob("*.yaml"))
            return {file.relative_to(place).with_suffix("").as_posix(): file for file in files}
    return {}
