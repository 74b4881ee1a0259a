"""The page of all tables is what the outcomes say."""

from pathlib import Path

import pytest

from motionformer.errors import RecipeError
from motionformer.experiments.tables import EXPERIMENTS
from motionformer.experiments.tables.outcome import Line, Outcome
from motionformer.experiments.tables.page import make_page, read_outcomes, write_page

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_what_the_outcomes_say() -> None:
    """Made again from `docs/results`: `motionformer reproduce --page docs`."""
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == make_page(read_outcomes(DOCS / "results"))


def test_the_page_shows_figures_and_what_was_not_run() -> None:
    here = Outcome("t4", "cpu", "motionformer reproduce t4", "2 steps", (Line("joint", (50.0, 70.0), 3.0),))
    real = Outcome(
        "t4",
        "cpu",
        "motionformer reproduce t4 --data g",
        "9 steps",
        (
            Line(
                "joint",
                (80.0,),
            ),
        ),
        data="g",
    )
    page = make_page([here, real])
    paper = "K400 79.2 % top-1, 94.2 % top-5; SSv2 64.0 % top-1, 88.4 % top-5"
    assert "| | paper | motion benchmark | g |" in page
    assert f"| joint | {paper} | 60.0 ± 14.1 (50.0, 70.0) | 80.0 |" in page
    assert "| trajectory, Avg_T | K400 76.0 % top-1; SSv2 60.0 % top-1 | not run | not run |" in page
    assert page.count("Not run yet") == sum(bool(one.cpu or one.here) for one in EXPERIMENTS.values()) - 1
    assert "| H, k400 |" in page
    assert "| run small: built-in data, g | `motionformer reproduce t4` |" in page


def test_a_page_of_nothing_is_refused(tmp_path: Path) -> None:
    for docs in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(RecipeError, match=r"no outcomes \(ID-cpu\.json\) in .*results"):
            write_page(docs)
    assert not list(tmp_path.iterdir())


def test_studies_have_a_table_for_each_group() -> None:
    lines = (Line("copied", (31.9,), group="J&F"), Line("copied", (35.7,), group="J"))
    page = make_page([Outcome("a6", "cpu", "c", "six", lines, "%", "davis")])
    assert "| | davis, J&F, % |\n|---|---|\n| copied | 31.9 |" in page
    assert "| | davis, J, % |\n|---|---|\n| copied | 35.7 |" in page
