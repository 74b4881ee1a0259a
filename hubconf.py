"""Entry points for `torch.hub`: every model by name, and any weights.

    model = torch.hub.load("OWNER/motionformer", "motionformer_base")                        # new
    model = torch.hub.load("OWNER/motionformer", "motionformer_base", pretrained="k400_motionformer_224_16x4")
    model = torch.hub.load("OWNER/motionformer", "pretrained", "path/to/weights")

The names are those of `motionformer info`, with underscores.
"""

import sys
from collections.abc import Callable as _Callable
from operator import attrgetter as _attrgetter
from pathlib import Path as _Path
from typing import Any as _Any

dependencies = ["torch", "einops", "jaxtyping", "huggingface_hub", "safetensors", "filelock", "numpy", "rich", "yaml"]

sys.path.insert(0, str(_Path(__file__).parent / "src"))  # torch.hub fetches the repository; it does not install it

# with underscores: whatever can be called and has none is an entry point
from motionformer.errors import CheckpointError as _CheckpointError  # noqa: E402
from motionformer.models import VARIANTS as _VARIANTS  # noqa: E402
from motionformer.models import Motionformer as _Motionformer  # noqa: E402
from motionformer.models import create_model as _create_model  # noqa: E402
from motionformer.weights import load_model as _load_model  # noqa: E402


def pretrained(source: str, **options: _Any) -> _Motionformer:
    """A model with weights: a released name, a file, a folder, or `user/name` on the Hugging Face hub.

    `options` are those of `motionformer.load_model`: `num_classes`, `frames`, `size` …
    """
    return _load_model(source, **options)


def _entry_point(name: str) -> _Callable[..., _Motionformer]:
    def build(pretrained: str | bool | None = None, **options: _Any) -> _Motionformer:
        if pretrained is True:
            raise ValueError("pretrained takes the name of weights, such as 'k400_motionformer_224_16x4'.")
        if not pretrained:
            return _create_model(name, **options)
        model = _load_model(pretrained, **options)
        _check_kind(name, pretrained, model)
        return model

    build.__name__ = name.replace("-", "_")
    build.__doc__ = (
        f"{name}: new, or with the weights `pretrained` (a released name, a file, a folder, a hub repository) of "
        f"such a model.\n\n    `options` are those of `motionformer.create_model`: `num_classes`, `frames`, `size` …"
    )
    return build


def _check_kind(name: str, source: str, model: _Motionformer) -> None:
    """An error where the weights are another architecture than the name promises; sizes and classes may differ."""
    wanted, found = _VARIANTS[name], model.config
    for what in ("attention", "kernel.kind", "dim", "depth", "num_heads", "time"):
        of = _attrgetter(what)
        if of(wanted) != of(found):
            raise _CheckpointError(
                f"{source} is no {name}: its {what} is {of(found)}, not {of(wanted)}. "
                f"The entry point 'pretrained' takes any weights."
            )


for _name in _VARIANTS:
    globals()[_name.replace("-", "_")] = _entry_point(_name)
