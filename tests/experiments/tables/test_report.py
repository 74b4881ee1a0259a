"""Outcomes as files, and the page of all of them."""

import json
from pathlib import Path

import pytest

from motionformer.errors import RecipeError
from motionformer.experiments.tables import EXPERIMENTS
from motionformer.experiments.tables.outcome import Line, Outcome, _make_page, read_outcomes, write_page

SEEDS = Outcome("t4", "cpu", "a command", "2 steps", (Line("a", (50.0, 70.0), 3.0), Line("b", (10.0,), 3.0)))
GROUPS = Outcome(
    "a5", "cpu", "c", "counted", (Line("x", (1.25,), group="G", paper="1.2"), Line("x", (20.0,), group="GB")), ""
)


def test_the_table_shows_every_seed() -> None:
    assert SEEDS.to_markdown().splitlines() == [
        "| top-1, % | mean | ± s.d. | seed 0 | seed 1 | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| a | 60.0 | 14.1 | 50.0 | 70.0 | 3 |",
        "| b | 10.0 |  | 10.0 |  | 3 |",
    ]


def test_a_seed_stands_in_its_own_column() -> None:
    lines = (Line("a", (50.0, 70.0)), Line("b", (10.0,), seeds=(1,)))
    assert Outcome("t4", "cpu", "", "", lines).to_markdown().splitlines()[2:] == [
        "| a | 60.0 | 14.1 | 50.0 | 70.0 |",
        "| b | 10.0 |  |  | 10.0 |",
    ]


def test_figures_of_a_row_have_the_same_digits() -> None:
    gains = Line("stop", (0.0, -3.846, -0.001))
    assert [gains.show(value) for value in gains.values] == ["0.00", "-3.85", "0.00"]
    assert Line("x", (123.45, 1.0)).show(1.0) == "1.0"


def test_groups_are_tables_of_their_own() -> None:
    assert GROUPS.to_markdown().splitlines() == [
        "| G | paper | here |",
        "| --- | ---: | ---: |",
        "| x | 1.2 | 1.25 |",
        "",
        "| GB | here |",
        "| --- | ---: |",
        "| x | 20.0 |",
    ]


def test_the_card_says_what_was_run_and_what_the_original_needs() -> None:
    card = SEEDS._to_card()
    assert "`a command`" in card
    assert "What was run: 2 steps" in card
    assert "The original needs: K400, SSv2" in card


def test_pictures_have_a_panel_for_each_group_and_lines_for_points() -> None:
    (bars,) = SEEDS.draw().axes
    assert bars.get_xlabel().endswith("\ndots: seeds")
    line = SEEDS.lines[0]
    assert bars.get_yticklabels()[0].get_text() == f"{line.label}   {line.show(line.mean)}"
    assert [axes.get_xlabel() for axes in GROUPS.draw().axes] == ["G\ndiamonds: paper", "GB"]
    points = [Line(f"{group} {x}", (40.0 + x,), group=group, x=x) for group in "ab" for x in (1.0, 2.0)]
    (curves,) = Outcome("a1", "cpu", "c", "", tuple(points)).draw().axes
    assert [text.get_text() for text in curves.get_legend().get_texts()] == ["a", "b"]


def test_files_are_named_after_experiment_scale_and_data(tmp_path: Path) -> None:
    outcome = Outcome("t4", "cpu", "c", "", SEEDS.lines, data="gestures")
    files = outcome.write(tmp_path)
    assert [file.name for file in files] == [f"t4-cpu-gestures.{end}" for end in ("json", "md", "png")]
    assert Outcome.read(files[0]) == outcome
    assert json.loads(files[0].read_text())["lines"][0]["values"] == [50.0, 70.0]


def test_a_single_accuracy_has_an_interval_and_several_have_their_spread() -> None:
    one = Outcome("t4", "cpu", "c", "", (Line("a", (75.0,), videos=40),))
    assert "| a | 75.0 (95 % CI 59.8–85.8, 40 clips) |" in one.to_markdown()
    assert "CI" not in Outcome("t4", "cpu", "c", "", (Line("a", (75.0, 80.0), videos=40),)).to_markdown()
    assert Line("a", (1.5,)).interval == ""


DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_what_the_outcomes_say() -> None:
    """Made again from `docs/results`: `motionformer reproduce --page docs`."""
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == _make_page(read_outcomes(DOCS / "results"))


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
    page = _make_page([here, real])
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
    page = _make_page([Outcome("a6", "cpu", "c", "six", lines, "%", "davis")])
    assert "| | davis, J&F, % |\n|---|---|\n| copied | 31.9 |" in page
    assert "| | davis, J, % |\n|---|---|\n| copied | 35.7 |" in page
