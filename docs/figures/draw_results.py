"""Draws results-*.png from the outcomes in docs/results, as `motionformer reproduce` draws them.

python docs/figures/draw_results.py
"""

from pathlib import Path

from motionformer.experiments.tables.outcome import read_outcomes

HERE = Path(__file__).parent


def main() -> None:
    for outcome in read_outcomes(HERE.parent / "results"):
        outcome.draw().savefig(HERE / outcome.picture_name, dpi=130)


if __name__ == "__main__":
    main()
