"""`torch.compile(fullgraph=True)` and `torch.export`, in fresh interpreters (run-time shape checks do not compile)."""

from collections.abc import Callable

import pytest

TINY = """
import torch
from motionformer import create_model
from motionformer.models import KernelConfig
torch.manual_seed(0)
torch.set_num_threads(1)
few = KernelConfig("orthoformer", num_prototypes=8)
better = KernelConfig("orthoformer", 8, refine=True, ridge=0.01)
clip = torch.randn(2, 3, 8, 48, 48)
models = {
    "exact": create_model("motionformer-tiny", depth=1),
    "chunked": create_model("motionformer-tiny", depth=1, chunk_size=50),
    "orthoformer": create_model("motionformer-tiny", depth=1, kernel=few),
    "improved": create_model("motionformer-tiny", depth=1, kernel=better),
    "nystrom": create_model("motionformer-tiny", depth=1, kernel=KernelConfig("nystrom", num_prototypes=8)),
    "performer": create_model("motionformer-tiny", depth=1, kernel="performer"),
    "joint": create_model("joint-tiny", depth=1),
    "divided": create_model("divided-tiny", depth=1),
}
"""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("exact", id="exact"),
        pytest.param(
            "chunked orthoformer improved nystrom performer joint divided", id="others", marks=pytest.mark.slow
        ),
    ],
)
def test_tiny_models_compile_in_one_graph(run_python: Callable[[str], str], names: str) -> None:
    run_python(
        TINY
        + f"chosen = {names.split()}"
        + """
with torch.no_grad():
    for name, model in ((name, models[name]) for name in chosen):
        model.eval()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(clip), model(clip)), name
"""
    )


@pytest.mark.slow
def test_generated_code_gives_the_same(run_python: Callable[[str], str]) -> None:
    run_python(
        TINY
        + """
model = create_model("motionformer-tiny", depth=1).eval()
with torch.no_grad():
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(clip), model(clip), atol=1e-5, rtol=1e-4)
"""
    )


@pytest.mark.slow
def test_compiled_training_gives_the_same_gradients(run_python: Callable[[str], str]) -> None:
    run_python(
        TINY
        + """
model = models["exact"]
found = {}
for name, one in (("plain", model), ("compiled", torch.compile(model, fullgraph=True, backend="aot_eager"))):
    model.zero_grad()
    one(clip).square().sum().backward()
    found[name] = {n: p.grad.clone() for n, p in model.named_parameters()}
for n, gradient in found["plain"].items():
    torch.testing.assert_close(found["compiled"][n], gradient, atol=1e-4, rtol=1e-4)
"""
    )


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("exact orthoformer", id="some"),
        pytest.param("chunked improved nystrom performer joint divided", id="others", marks=pytest.mark.slow),
    ],
)
def test_tiny_models_export(run_python: Callable[[str], str], names: str) -> None:
    """Exported programs need no operator of this package."""
    run_python(
        TINY
        + f"chosen = {names.split()}"
        + """
for name, model in ((name, models[name]) for name in chosen):
    program = torch.export.export(model.eval(), (clip,))
    torch.testing.assert_close(program.module()(clip), model(clip)), name
    assert "motionformer" not in {str(n.target).split(".")[0] for m in program.graph_module.modules()
                                  if hasattr(m, "graph") for n in m.graph.nodes}, name
"""
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["compile", "export"])
def test_base_model(how: str, run_python: Callable[[str], str]) -> None:
    capture = {
        "compile": "torch.compile(model, fullgraph=True, backend='eager')",
        "export": "torch.export.export(model, (clip,)).module()",
    }[how]
    run_python(
        f"""
import torch
from motionformer import create_model
model, clip = create_model("motionformer-base").eval(), torch.randn(1, 3, 16, 224, 224)
with torch.no_grad():
    torch.testing.assert_close(({capture})(clip), model(clip))
"""
    )
