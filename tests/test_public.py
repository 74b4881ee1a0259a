"""The public API: every exported name is there, explained, and its examples run."""

import doctest
import inspect

import pytest
import torch

import motionformer
from motionformer import attention, models, weights

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
