"""Draws results-*.png from the outcomes in docs/results, as `motionformer reproduce` draws them.

python docs/figures/draw_results.py
"""

from pathlib import Path

from motionformer.experiments.tables import EXPERIMENTS
from motionformer.experiments.tables.report import draw, picture_name, read_outcomes

HERE = Path(__file__).parent


def main() -> None:
    for outcome in read_outcomes(HERE.parent / "results"):
        draw(EXPERIMENTS[outcome.id], outcome).savefig(HERE / picture_name(outcome), dpi=130)


if __name__ == "__main__":
    main()
