"""The public API: every exported name is there, explained, and its examples run."""

import doctest
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import motionformer
from motionformer import attention, export, inference, models, serve, tracing, tracking, weights

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
def test_a_name_is_explained_with_an_example_that_runs(name: str) -> None:
    value = EXPLAINED[name]
    text = inspect.getdoc(value) or ""
    assert "Example:" in text
    has_arguments = inspect.isclass(value) or bool(inspect.signature(value).parameters)
    assert "Args:" in text or not has_arguments or name.endswith(("AttentionKernel", "LayerRecord", "TemporalAverage"))
    names = {**vars(attention), **vars(models), **vars(weights), "torch": torch}
    found = doctest.DocTestFinder(recurse=inspect.isclass(value)).find(value, name, globs=names)
    for test in found:
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0, test.name


@pytest.mark.parametrize("package", [export, inference, serve, tracing, tracking], ids=lambda package: package.__name__)
def test_the_examples_of_a_package_run(package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    values = {name: getattr(package, name) for name in package.__all__}
    names = {**vars(package), "torch": torch, "np": np}
    for name, value in values.items():
        if inspect.isclass(value) or inspect.isroutine(value):
            for test in finder.find(value, name, globs=names):
                assert runner.run(test).failed == 0, test.name
