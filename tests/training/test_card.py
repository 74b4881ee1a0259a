"""The run card names our own commit, or none."""

import subprocess
from pathlib import Path

import pytest

import motionformer
from motionformer.training.run_folder import _git_commit


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, and a package in a folder that it ignores."""
    (tmp_path / ".gitignore").write_text(".venv\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/__init__.py").touch()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".gitignore")
    git(tmp_path, "commit", "--quiet", "--message", "somebody's own")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    return subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_installed_in_somebody_elses_repository_it_has_no_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(motionformer, "__file__", str(repository / ".venv/__init__.py"))
    assert _git_commit() is None


def test_a_checkout_has_its_commit_and_says_if_it_was_changed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = repository / ".venv/__init__.py"
    monkeypatch.setattr(motionformer, "__file__", str(file))
    git(repository, "add", "--force", str(file))
    git(repository, "commit", "--quiet", "--message", "its file is tracked")
    commit = git(repository, "rev-parse", "HEAD")
    assert _git_commit() == commit
    file.write_text("changed")
    assert _git_commit() == f"{commit} (changed)"
