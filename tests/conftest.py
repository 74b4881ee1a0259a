"""Shared by all tests: shapes in signatures are checked at run time, and one thread makes runs repeatable."""

from collections.abc import Callable
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook("motionformer", "beartype.beartype")

import torch  # noqa: E402

from tests.children import run_code  # noqa: E402

torch.set_num_threads(1)
SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.manual_seed(0)


@pytest.fixture
def run_python() -> Callable[[str], str]:
    """Run code in a process of its own, without run-time shape checks (they do not survive `torch.compile`)."""

    def run(code: str) -> str:
        done = run_code(code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def shared() -> Path:
    """The folder of real data beside the checkout; tests that use it are skipped where it is not."""
    if not SHARED.is_dir():
        pytest.skip("no real data beside the checkout")
    return SHARED
