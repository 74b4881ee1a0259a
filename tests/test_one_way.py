"""What has a home in the package is done there and nowhere else."""

import re
from pathlib import Path

import pytest

import motionformer

SOURCE = Path(motionformer.__file__).parent
HOMES = {
    "csv text": (r"csv\.(writer|DictWriter)\(", {"runs.py"}),
    "progress bars": (r"(import|from) rich\.progress|tqdm", {"logging.py", "training/logs.py"}),
    "addresses of the motion benchmark": (r"""(startswith|removeprefix)\((["']motion|MOTION)""", {"data/source.py"}),
    "ranks": (
        r"""["'](LOCAL_|NODE_|GROUP_)?(RANK|WORLD_SIZE)["'](?!\] = )|"""
        r"SLURM_(PROCID|LOCALID|NTASKS|NNODES)|get_rank\(|is_initialized\(",
        {"distributed.py"},
    ),
    "file locks": (r"import fcntl", {"runs.py"}),
    "handlers of messages": (r"addHandler|basicConfig|StreamHandler", {"logging.py"}),
    # the monitor prints just before it ends the process, when no handler may run any more
    "printing": (r"^\s*(print|typer\.echo)\((?!.*# )", {"cli/", "monitor.py"}),
}


@pytest.mark.parametrize("idea", HOMES)
def test_nothing_is_done_elsewhere(idea: str) -> None:
    pattern, homes = HOMES[idea]
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        code = re.sub(r'""".*?"""', "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        if re.search(pattern, code, re.MULTILINE):
            found[name] = any(name.startswith(home) for home in homes)
    assert any(found.values()), "the pattern finds nothing: it is out of date"
    assert [name for name, is_home in found.items() if not is_home] == []
