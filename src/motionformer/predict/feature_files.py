"""Features on disk: one npz or safetensors file a video, whole or not at all, that says what it holds.

`values` and `times` as in `Features`; what made them is JSON, in the array `about` (npz) or in the metadata
(safetensors). Values go through a file on their way, so that an hour of tokens does not have to fit into memory; only
writing safetensors takes all of a video's values at once.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Literal
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from motionformer.errors import EvaluationError
from motionformer.evaluation.results import READ, write_atomically
from motionformer.predict.features import Features
from motionformer.runs import naming
from motionformer.video import ReadFacts

Format = Literal["npz", "safetensors"]
About = Mapping[str, Any]


def write_features(
    file: Path, parts: Iterable[Features], about: About, dtype: str = "float32"
) -> tuple[tuple[int, ...], ReadFacts | None]:
    """Write a video's features as they come; the shape of `values` comes out, and what they were made from, which the
    file says too. The ending says the format."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with naming(file), tempfile.TemporaryFile(dir=file.parent) as store:
        times: list[Any] = []
        facts: list[ReadFacts] = []
        shape: tuple[int, ...] = ()
        for part in parts:
            store.write(np.ascontiguousarray(part.values, dtype=dtype).tobytes())
            times.append(part.times)
            facts += [] if part.facts is None else [part.facts]
            shape = part.values.shape[1:]
        store.flush()
        values = np.memmap(store, dtype=dtype, mode="r", shape=(sum(map(len, times)), *shape))
        together = ReadFacts.together(facts) if facts else None
        said = json.dumps({**about, **({} if together is None else together.to_dict())})
        write = _write_npz if file.suffix == ".npz" else _write_safetensors
        write_atomically(file, lambda stream: write(stream, values, np.concatenate(times), said))
        return tuple(values.shape), together


def read_features(file: Path) -> tuple[Features, dict[str, Any]]:
    """The features of a file, and what it says about them."""
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                about = json.loads(str(arrays["about"]))
                return Features(arrays["values"], arrays["times"], _facts(about)), about
        with safe_open(file, framework="numpy") as opened:
            about = json.loads(opened.metadata()["about"])
            return Features(opened.get_tensor("values"), opened.get_tensor("times"), _facts(about)), about
    except (OSError, BadZipFile, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise EvaluationError(f"{file}: not a file of `motionformer features` ({error}).") from error


def _facts(about: About) -> ReadFacts | None:
    return ReadFacts(*(about[key] for key in READ)) if "distinct_frames" in about else None


def read_about(file: Path) -> dict[str, Any]:
    """What a file says about its features, without reading them."""
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                text = str(arrays["about"])
        else:
            with safe_open(file, framework="numpy") as opened:
                text = opened.metadata()["about"]
        found: dict[str, Any] = json.loads(text)
    except (OSError, BadZipFile, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise EvaluationError(
            f"{file}: not a file of `motionformer features` ({error}). Remove it, or give another folder."
        ) from error
    return found


def _write_npz(stream: IO[bytes], values: Shaped[np.ndarray, "..."], times: Any, about: str) -> None:
    np.savez(stream, values=values, times=times, about=np.array(about))


def _write_safetensors(stream: IO[bytes], values: Shaped[np.ndarray, "..."], times: Any, about: str) -> None:
    stream.write(save({"values": np.asarray(values), "times": times}, metadata={"about": about}))
