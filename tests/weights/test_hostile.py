"""Weights files and configurations that somebody made to break us: one line each, before anything large is built."""

import io
import json
import os
import pickle
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from motionformer.errors import CheckpointError
from motionformer.weights import load_model
from motionformer.weights.load import SHIPPED, fetch_from_hub

NAN, HUGE = float("nan"), 10**9
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"depth": HUGE}, "`depth` (1000000000) must be from 0 to 1,000"),
    ({"depth": 999}, "a `depth` of 999, and the file 4 blocks"),
    ({"depth": True}, "`depth` must be a whole number; not True"),
    ({"dim": HUGE}, "`dim`"),
    ({"dim": 65536, "num_heads": 1}, "they do not belong together"),
    ({"dim": "96"}, "`dim` must be a whole number; not '96'"),
    ({"num_heads": -1}, "`num_heads` (-1)"),
    ({"num_heads": 5}, "does not describe a model"),
    ({"mlp_ratio": NAN}, "`mlp_ratio` must be a number; not nan"),
    ({"mlp_ratio": 64.0}, "the model needs (6144"),
    ({"patch": HUGE}, "`patch`"),
    ({"num_prefix_tokens": -1}, "`num_prefix_tokens`"),
    ({"num_classes": 10**15}, "`num_classes`"),
    ({"num_classes": {"a": {}}}, "`num_classes`"),
    ({"position_grid": [16384, 16384]}, "they do not belong together"),
    ({"position_frames": 10**12}, "`position_frames`"),
    ({"readout": "attentive", "readout_depth": 10**6}, "`readout_depth`"),
    ({"labels": "abcdefgh"}, "`labels`"),
    ({"chunk_size": 0}, "`chunk_size`"),
    ({"drop_path": 5}, "`drop_path`"),
    ({"norm_eps": "x"}, "`norm_eps`"),
    ({"qkv_bias": "maybe"}, "`qkv_bias` must be true or false"),
    ({"source": 5}, "`source`"),
    ({"attention": ["a"]}, "`attention` must be text"),
    ({"attention_options": [1]}, "`attention_options`"),
    ({"kernel": 7}, "`kernel`"),
    ({"kernel": {"kind": "performer", "num_features": 10**10}}, "`num_features`"),
    ({"adapter": {"attention": "trajectory", "width": 10**8}}, "`width`"),
    ({"input.frames": HUGE}, "`frames` (1000000000)"),
    ({"input.frames": 16384}, "they do not belong together|do not match their configuration"),
    ({"input.views": "x"}, "`views` must be a whole number; not 'x'"),
    ({"input.views": HUGE}, "`views`"),
    ({"input.stride": 0}, "`stride`"),
    ({"input.fps": -1}, "`fps`"),
    ({"input.mean": [1, 2]}, "`mean` must be a list of 3 numbers"),
    ({"input.std": [0, 0, 0]}, "`std`"),
]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED["motion-tiny"], tmp_path / "model"))


def assert_rejected(source: Path, *said: str) -> str:
    """One line, soon, that names the file."""
    started = time.monotonic()
    with pytest.raises(CheckpointError) as caught:
        load_model(source)
    text = str(caught.value)
    assert any(part in text for part in said), text
    assert "\n" not in text
    assert source.name in text
    assert "weights_only" not in text
    assert time.monotonic() - started < 5
    return text


@pytest.mark.parametrize(
    ("change", "said"), CHANGES, ids=lambda value: "" if isinstance(value, str) else str(value)[:40]
)
def test_a_configuration_is_checked_before_anything_is_built(change: dict[str, Any], said: str, model: Path) -> None:
    content = json.loads((model / "config.json").read_text())
    for key, value in change.items():
        group, dot, name = key.rpartition(".")
        (content["architecture"][group] if dot else content["architecture"])[name] = value
    (model / "config.json").write_text(json.dumps(content))
    assert_rejected(model, *said.split("|"))


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000 + "]" * 200_000, '{"a":' * 100_000 + "1" + "}" * 100_000, '{"architecture": null}', "{", "[1]"],
    ids=["deep list", "deep group", "null", "cut", "list"],
)
def test_a_configuration_that_is_none(text: str, model: Path) -> None:
    (model / "config.json").write_text(text)
    assert_rejected(model, "not JSON", "does not describe a model", "neither a released video model")


class _Evil:
    """Makes a file, if it is ever unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.file}",)


def _legacy(value: Any, file: Path) -> None:
    torch.save({"model_state": value}, file, _use_new_zipfile_serialization=False)


WRITERS: dict[str, Callable[[Any, Path], None]] = {
    "zip": lambda value, file: torch.save({"model_state": {"a": value}}, file),
    "legacy": _legacy,
    "protocol 0": lambda value, file: file.write_bytes(pickle.dumps(value, 0)) and None,
    "protocol 4": lambda value, file: file.write_bytes(pickle.dumps({"a": value}, 4)) and None,
    "inst": lambda value, file: file.write_bytes(f"(S'touch {value.file}'\nios\nsystem\n.".encode()) and None,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_pickle_that_would_run_code_is_called_that(writer: str, tmp_path: Path) -> None:
    WRITERS[writer](_Evil(tmp_path / "ran"), tmp_path / "evil.pyth")
    text = assert_rejected(tmp_path / "evil.pyth", "would run code when it is opened")
    assert "system" in text
    assert not (tmp_path / "ran").exists()


def test_modules_and_scripts_are_code_too(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    assert_rejected(tmp_path / "module.pt", "would run code when it is opened (torch.nn.modules.linear.Linear)")


def test_a_compressed_archive_is_not_unpacked(tmp_path: Path) -> None:
    """200 MB in 200 kB."""
    box = io.BytesIO()
    torch.save({"model_state": {"temp_embed": torch.zeros(10)}}, box)
    with (
        zipfile.ZipFile(box) as source,
        zipfile.ZipFile(tmp_path / "bomb.pyth", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bomb,
    ):
        for name in source.namelist():
            bomb.writestr(name, bytes(200 << 20) if name.endswith("data/0") else source.read(name))
    assert_rejected(tmp_path / "bomb.pyth", "bytes are packed into")


def test_a_tensor_larger_than_its_file(tmp_path: Path) -> None:
    torch.save({"model_state": {"temp_embed": torch.zeros(1).expand(10**5, 10**5)}}, tmp_path / "wide.pyth")
    assert_rejected(tmp_path / "wide.pyth", "more than the file can hold")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weight: weight.index_fill(0, torch.tensor([0]), NAN), "are infinite or not a number"),
        (lambda weight: weight.to(torch.int8), "is int8, no floating-point numbers"),
    ],
)
def test_broken_and_quantised_weights_are_reported(
    change: Callable[[torch.Tensor], torch.Tensor], said: str, model: Path
) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["norm.weight"] = change(tensors["norm.weight"])
    save_file(tensors, model / "model.safetensors")
    assert_rejected(model, said)


def test_a_revision_of_the_hub() -> None:
    asked: list[tuple[Any, ...]] = []

    def get(repo: str, file: str, **options: Any) -> str:
        asked.append((repo, file, options))
        return f"/cache/{file}"

    assert fetch_from_hub("user/name@v1.2", "model.safetensors", get=get) == Path("/cache/model.safetensors")
    fetch_from_hub("user/name", "config.json", get=get)
    assert asked == [
        ("user/name", "model.safetensors", {"revision": "v1.2"}),
        ("user/name", "config.json", {}),
    ]
