"""The public API: every exported name is there, explained, and its examples run."""

import ast
import doctest
import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import motionformer
from motionformer import attention, models, weights

SOURCE = Path(motionformer.__file__).parent

EXPORTED = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (attention, models, weights)
    for name in package.__all__
}
EXPLAINED = {name: value for name, value in EXPORTED.items() if inspect.isclass(value) or inspect.isroutine(value)}


def test_every_name_is_there_and_listed() -> None:
    for name in motionformer.__all__:
        assert getattr(motionformer, name) is not None
    assert set(motionformer.__all__) <= set(dir(motionformer))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        motionformer.nothing  # noqa: B018


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_name_is_explained_with_an_example(name: str) -> None:
    value = EXPLAINED[name]
    text = inspect.getdoc(value) or ""
    assert "Example:" in text
    has_arguments = inspect.isclass(value) or bool(inspect.signature(value).parameters)
    assert "Args:" in text or not has_arguments or name.endswith(("AttentionKernel", "LayerRecord", "TemporalAverage"))


WITH_EXAMPLES = [file for file in sorted(SOURCE.rglob("*.py")) if ">>> " in file.read_text()]


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_examples_run(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `>>>` of the package, with the names of its module and package, of `motionformer`, torch and numpy.

    Docstrings are read from the source: doctest's own finder passes by functions that a decorator has wrapped.
    """
    monkeypatch.chdir(tmp_path)
    home = import_module(".".join(file.relative_to(SOURCE.parent).with_suffix("").parts))
    public = {name: getattr(motionformer, name) for name in motionformer.__all__}
    names = {**public, **vars(import_module(home.__package__ or "")), **vars(home), "torch": torch, "np": np}
    text = file.read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    count = 0
    for docstring in docstrings:
        test = doctest.DocTestParser().get_doctest(docstring, dict(names), file.name, str(file), 0)
        count += len(test.examples)
        runner.run(test)
    assert count == text.count(">>> ")
    assert runner.failures == 0
