"""Draws the pictures of README and docs: `make figures`."""

import runpy
from pathlib import Path

for script in sorted(Path(__file__).parent.glob("draw_*.py")):
    runpy.run_path(str(script), run_name="__main__")
