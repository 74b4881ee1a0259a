"""What the project files claim: one version, the Python and PyTorch that are tested, a workflow whose targets exist."""

import re
import sys
import tomllib
from pathlib import Path

import torch
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import motionformer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert Version(motionformer.__version__) <= Version(newest[1])


def test_no_older_python_or_torch_is_promised_than_these_tests_run_on() -> None:
    lowest = min(Version(clause.version) for clause in SpecifierSet(PROJECT["requires-python"]))
    assert lowest == Version("3.11") <= Version(".".join(map(str, sys.version_info[:2])))
    ranges = {r.name: r.specifier for r in map(Requirement, PROJECT["dependencies"])}
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    bound = next(Version(clause.version) for clause in ranges["torch"] if clause.operator == ">=")
    assert Version(pins["torch"]).release[:2] == bound.release[:2] <= Version(torch.__version__).release[:2]
    page = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    assert f"| Python | {lowest} |" in page
    assert f"| PyTorch | {bound.major}.{bound.minor} " in page


def test_every_requirement_has_a_tested_version() -> None:
    extras = [r for group in PROJECT["optional-dependencies"].values() for r in group]
    names = {Requirement(r).name.lower() for r in (*PROJECT["dependencies"], *extras)} - {"motionformer"}
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower()
    pinned = set(re.findall(r"^([\w-]+)==", text, re.MULTILINE))
    assert sorted(names - pinned) == []


def test_the_workflow_runs_targets_that_exist() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    targets = {step["run"].split()[1] for job in jobs.values() for step in job["steps"] if "run" in step}
    assert targets == {"check", "docs", "test", "coverage"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
