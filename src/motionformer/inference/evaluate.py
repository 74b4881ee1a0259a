"""The loop: every view of every video through the model, once. Top-down: read, score, save, put together.

Videos are taken in groups of whole videos that fill a batch; a video with more views than a batch holds is split, so
memory depends on the batch and never on the number of views. Groups are cut by index, so who computes a group, and
after how many interruptions, does not change a bit of it.
"""


import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Shaped
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from motionformer.data import Failure
from motionformer.errors import EvaluationError
from motionformer.inference.scorer import Scoring
from motionformer.inference.classes import SINGLE, Columns, by_task, fit_scoring, match_classes
from motionformer.inference.scorer import Precision, autocast, find_device
from motionformer.inference.overlap import data_fingerprint, model_fingerprint, video_stamps
from motionformer.inference.overlap import find_overlap, refuse_overlap
from motionformer.inference.results import RESULTS, UNKNOWN, Header, Results
from motionformer.inference.several import Processes, find_processes
from motionformer.inference.views import ReadVideo, VideoSource
from motionformer.models import ModelConfig
from motionformer.models.motionformer import evaluating

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from motionformer.data import Failure
from motionformer.inference.views import ReadVideo, VideoSource

from collections.abc import Iterable, Sequence
from pathlib import Path

from motionformer.errors import EvaluationError
from motionformer.inference.results import RESULTS, Header, Results
from motionformer.runs import GONE, is_stamp_of

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float32

from motionformer.errors import EvaluationError
from motionformer.inference.results import Header, facts_from, facts_to_array, write_atomically
from motionformer.video import ReadFacts


def evaluate(
    model: nn.Module,
    source: VideoSource,
    *,
    name: str | None = None,
    device: str | torch.device | None = None,
    batch: int = 8,
    num_workers: int = 0,
    precision: Precision = "32",
    scoring: Scoring | None = None,
    output: str | Path | None = None,
    seconds_a_part: float = 10.0,
    show_progress: bool = True,
    allow_overlap: bool = False,
) -> Results:
    """Score every view of every video of `source`; what comes out is the same in every process of a run.

    Args:
        name: of the model in reports.
        device: where to compute; where the model is by default. The model is moved there.
        batch: clips (views) in one forward pass.
        scoring: what the model was trained for by default: `Softmax`, or `Sigmoid` for videos of several classes.
        output: folder for `results.csv` and `results.npz`. While running, parts are kept there: the same call goes on
            after an interruption, returns at once when all is done, and tries failed videos again whose files have
            changed since. Another model, data or protocol is refused, and files that have changed since their score.
        seconds_a_part: how much work an interruption may cost.
        allow_overlap: score also videos that the model has learnt from (`Results.overlap` says which). Otherwise they
            are an `EvaluationError`. A model that does not say what it was trained on is scored, and that is said.
    """
    if batch < 1:
        raise EvaluationError(f"a batch holds at least one clip, not {batch}.")
    scoring = scoring or fit_scoring(model, source)
    processes = find_processes()
    overlap = processes.first_does(lambda: find_overlap(model, source))
    if not allow_overlap:
        refuse_overlap(overlap, source)
    place = find_device(model, device)
    columns, class_names = _match(model, source)
    header = _header(model, source, name, class_names, scoring, precision)
    folder = None if output is None else Path(output)
    done, stamps = Scored(), tuple[str, ...]()
    if folder is not None:
        say = _speaker(show_progress and processes.is_first)
        paths = [entry.path for entry in source.entries]
        stamps = processes.first_does(lambda: video_stamps(source))
        earlier = processes.first_does(lambda: find_earlier(folder, header, paths, stamps))
        if isinstance(earlier, Results):
            say(f"{folder}: finished earlier: nothing was computed.")
            return replace(earlier, overlap=overlap)
        done = earlier
        if (folder / RESULTS).exists():
            say(f"{folder}: finished earlier; videos that could not be read and have changed since are tried again.")
    groups = make_groups(len(source.entries), batch // (header.views * header.crops), done)
    mine = done if processes.is_first else Scored()
    loader = load_groups(source, processes.share(groups), num_workers, place)

    def keep(part: Scored) -> None:
        if folder is not None:
            part.stamps = {index: stamps[index] for index in (*part.scores, *part.failures)}
            write_part(folder, part)
        mine.update(part)

    with _evaluating(model, place), _progress(len(source.entries), len(done), show_progress, processes) as advance:
        score = _Scorer(model, place, batch, precision, scoring, columns, (header.views, header.crops))
        is_whole = all_kept(_in_parts((score(items) for items in loader), seconds_a_part, advance), keep, num_workers)
    if not is_whole:
        raise EvaluationError(
            "a process that decodes videos died. A broken file can do that (`motionformer data check` finds it), and"
            " too little memory (fewer workers, a smaller batch). What was written to the output folder is kept: the"
            " same call goes on from there."
        )

    whole = Scored()
    for share in processes.gather(mine):
        whole.update(share)
    results = replace(_put_together(source, header, whole, stamps), overlap=overlap)
    if folder is not None:
        processes.first_does(lambda: _finish(folder, results))
    return results


class _Scorer:
    """Items of a group to their scores."""

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        batch: int,
        precision: Precision,
        scoring: Scoring,
        columns: Columns,
        shape: tuple[int, int],
    ) -> None:
        self.model, self.device, self.batch, self.scoring = model, device, batch, scoring
        self.columns, self.shape, self.precision = columns, shape, precision

    def __call__(self, items: list[tuple[int, ReadVideo | Tensor | Failure]]) -> Scored:
        found = Scored(failures={index: one.reason for index, one in items if isinstance(one, Failure)})
        found.facts = {index: one.facts for index, one in items if isinstance(one, ReadVideo)}
        plain = [(index, one.views if isinstance(one, ReadVideo) else one) for index, one in items]
        readable = [(index, views) for index, views in plain if isinstance(views, Tensor)]
        if not readable:
            return found
        scores = self._score(torch.cat([views for _, views in readable]))
        num_views = self.shape[0] * self.shape[1]
        for place, (index, views) in enumerate(readable):
            if len(views) != num_views:
                raise EvaluationError(f"video {index} came in {len(views)} views; {num_views} were announced.")
            rows = slice(place * num_views, (place + 1) * num_views)
            found.scores[index] = {task: all_[rows].reshape(*self.shape, -1) for task, all_ in scores.items()}
        return found

    def _score(self, views: Tensor) -> dict[str, Float32[np.ndarray, "v _"]]:
        chunks: dict[str, list[Tensor]] = {task: [] for task in self.columns}
        for clips in views.split(self.batch):
            logits = self._logits(clips)
            for task, values in (logits if isinstance(logits, Mapping) else {SINGLE: logits}).items():
                chunks[task].append(self.scoring(values).cpu()[:, self.columns[task]])
        return {task: _finite(torch.cat(parts).numpy(), task) for task, parts in chunks.items()}

    def _logits(self, clips: Tensor) -> Any:
        try:
            with autocast(self.device, self.precision):
                return self.model(clips.to(self.device, non_blocking=True))
        except torch.OutOfMemoryError as error:
            raise EvaluationError(
                f"{len(clips)} clips do not fit into the memory of {self.device}: a smaller batch."
            ) from error


def _in_parts(scored: Iterable[Scored], seconds: float, advance: Any) -> Iterator[Scored]:
    part, since = Scored(), time.monotonic()
    for group in scored:
        part.update(group)
        advance(len(group))
        if time.monotonic() - since >= seconds:
            yield part
            part, since = Scored(), time.monotonic()
    if len(part):
        yield part


def _put_together(source: VideoSource, header: Header, whole: Scored, stamps: tuple[str, ...]) -> Results:
    entries = source.entries
    missing = [index for index in range(len(entries)) if index not in whole]
    if missing or len(whole) != len(entries):
        raise AssertionError(f"{len(missing)} videos were given to no process; the first is {missing[:1]}")
    scores = {
        task: np.full((len(entries), header.views, header.crops, len(names)), np.nan, dtype=np.float32)
        for task, names in header.class_names.items()
    }
    for index, of_video in whole.scores.items():
        for task, values in of_video.items():
            scores[task][index] = values
    labels = {task: _labels(source, task, len(names)) for task, names in header.class_names.items()}
    ids, paths = tuple(entry.id for entry in entries), tuple(entry.path for entry in entries)
    return Results(header, ids, paths, labels, scores, dict(sorted(whole.failures.items())), stamps, whole.facts)


def _labels(source: VideoSource, task: str, num_classes: int) -> Shaped[np.ndarray, "n ..."]:
    found = [entry.label[task] if isinstance(entry.label, Mapping) else entry.label for entry in source.entries]
    if not any(isinstance(label, tuple) for label in found):
        return np.array([UNKNOWN if label is None else label for label in found], dtype=np.int64)
    several = np.zeros((len(found), num_classes), dtype=bool)
    for entry, row, label in zip(source.entries, several, found, strict=True):
        if not isinstance(label, tuple):
            raise EvaluationError(f"{entry.id}: its label is {label!r}; other videos have several each (a tuple).")
        row[list(label)] = True
    return several


def _match(model: nn.Module, source: VideoSource) -> tuple[Columns, dict[str, tuple[str, ...]]]:
    config = getattr(model, "config", None)
    if isinstance(config, ModelConfig):
        return match_classes(config, source.class_names)
    names = by_task(source.class_names)  # somebody else's model: its outputs are taken to be in the data's order
    return {task: list(range(len(of_task))) for task, of_task in names.items()}, names


def _header(
    model: nn.Module,
    source: VideoSource,
    name: str | None,
    class_names: dict[str, tuple[str, ...]],
    scoring: Scoring,
    precision: Precision,
) -> Header:
    config = getattr(model, "config", None)
    return Header(
        model=name or getattr(config, "source", None) or type(model).__name__,
        model_fingerprint=model_fingerprint(model),
        data=source.name,
        data_fingerprint=data_fingerprint(source),
        views=source.num_views,
        crops=source.num_crops,
        protocol=json.loads(json.dumps(source.protocol())),  # as it will come back from a file
        scoring=scoring.name,
        precision=precision,
        class_names=class_names,
    )


def _finish(folder: Path, results: Results) -> None:
    results.save(folder)
    remove_parts(folder)


def _finite(scores: Float32[np.ndarray, "v k"], task: str) -> Float32[np.ndarray, "v k"]:
    if not np.isfinite(scores).all():
        raise EvaluationError(
            f"the model's output for {task!r} is not a number. Its weights are broken, or it does not bear this"
            " precision: try 32."
        )
    return scores


@contextmanager
def _evaluating(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluation mode on a device, and no gradients; the mode is put back afterwards."""
    with evaluating(model.to(device)), torch.inference_mode():
        yield


def _speaker(speaks: bool) -> Callable[[str], None]:
    console = Console(stderr=True, quiet=not speaks)
    return lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _progress(total: int, done: int, show: bool, processes: Processes) -> Iterator[Any]:
    """A bar on stderr, where somebody looks at it; several processes are taken to be equally fast."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = show and console.is_terminal and processes.is_first
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        bar = progress.add_task("evaluating", total=total, completed=done)
        yield lambda count: progress.advance(bar, count * processes.count)


# ---- evaluation/reading: """Videos come from the processes that decode them, in groups that make up a batch. Knows no model."""

Groups = list[list[int]]


def make_groups(num_videos: int, size: int, done: "Scored | frozenset[int]" = frozenset()) -> Groups:
    """Neighbours by index, without the videos already done."""
    size = max(1, size)
    groups = [range(first, min(first + size, num_videos)) for first in range(0, num_videos, size)]
    left = [[index for index in group if index not in done] for group in groups]
    return [group for group in left if group]


def load_groups(source: VideoSource, groups: Groups, num_workers: int, device: torch.device) -> Iterable[Any]:
    """(index, views or failure) of every video, a list a group."""
    return DataLoader(
        _Items(source),
        batch_sampler=groups,
        num_workers=num_workers,
        collate_fn=_as_they_are,
        pin_memory=device.type == "cuda",
    )


def all_kept(parts: Iterable[Scored], keep: Callable[[Scored], None], num_workers: int) -> bool:
    """Whether all came. A decoder may take its process along; torch says so wherever the main process happens to be,
    if it does not stumble over the lost connection first, and again at the end of any other process for as long as the
    loader lives, so nothing here holds on to it."""
    try:
        for part in parts:
            keep(part)
    except (RuntimeError, ConnectionError, EOFError) as error:
        text = str(error)
        is_ours = num_workers == 0 or text.startswith("Caught ")
        if is_ours or (isinstance(error, RuntimeError) and "DataLoader worker" not in text):
            raise  # an error of the source, which a worker handed on
        return False
    return True


class _Items(Dataset[tuple[int, ReadVideo | Tensor | Failure]]):
    def __init__(self, source: VideoSource) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source.entries)

    def __getitem__(self, index: int) -> tuple[int, ReadVideo | Tensor | Failure]:
        return index, self.source.read(index)


def _as_they_are(items: list[Any]) -> list[Any]:
    return items


# ---- evaluation/earlier: """What an earlier evaluation left in a folder, finished or not, and whether its videos are still the same files.

A video that could not be read and has changed since is tried again: there is no result to lose. A video that was
scored and has changed since is refused, as all other data are. Scores outlive files that are no longer there.
"""


def find_earlier(folder: Path, header: Header, paths: Sequence[str], stamps: Sequence[str]) -> Results | Scored:
    """Finished results of this evaluation, or what of it need not be computed again. Refuses those of another.

    Args:
        paths, stamps: of all videos, as they are now.
    """
    if not (folder / RESULTS).exists():
        return _still_true(folder, open_parts(folder, header), paths, stamps)
    results = Results.load(folder)
    refuse_others(folder, results.header, header)
    whole = _as_part(results)
    if len(_still_true(folder, [whole], paths, stamps)) == len(results):
        return results
    return _still_true(folder, [whole, *open_parts(folder, header)], paths, stamps)


def _still_true(folder: Path, parts: Iterable[Scored], paths: Sequence[str], stamps: Sequence[str]) -> Scored:
    done, replaced = Scored(), set[int]()
    for part in parts:
        changed = {index for index, stamp in part.stamps.items() if stamps[index] not in (stamp, GONE)}
        replaced |= {
            index for index in changed & part.scores.keys() if not is_stamp_of(part.stamps[index], Path(paths[index]))
        }
        done.update(_without_failed(part, changed))
    if replaced:
        raise EvaluationError(
            f"{folder} holds the scores of other files: {len(replaced)} of {len(paths)} videos have another size or"
            f" time of change than when they were scored, the first is {paths[min(replaced)]}. Give another folder,"
            " or remove this one."
        )
    return done


def _without_failed(part: Scored, changed: set[int]) -> Scored:
    dropped = changed & part.failures.keys()
    failures = {index: reason for index, reason in part.failures.items() if index not in dropped}
    stamps = {index: stamp for index, stamp in part.stamps.items() if index not in dropped}
    return Scored(part.scores, failures, stamps, part.facts)


def _as_part(results: Results) -> Scored:
    scores = {
        index: {task: values[index] for task, values in results.scores.items()}
        for index in range(len(results))
        if index not in results.failures
    }
    return Scored(scores, dict(results.failures), dict(enumerate(results.stamps)), dict(results.facts))


# ---- evaluation/parts: """A running evaluation on disk, in parts: killed at any moment, it goes on where it stopped.

`parts/header.json` says what is being evaluated; every other file holds the scores of some videos. Each is written
whole or not at all. How videos fall into parts has no influence on the result.
"""

log = logging.getLogger("motionformer")
FOLDER, HEADER = "parts", "header.json"


@dataclass
class Scored:
    """Videos done so far, by index: the scores of every task `[v c k]`, or why there are none.

    `stamps` are those of their files, and `facts` what the scores were made from, where they are known.
    """

    scores: dict[int, dict[str, Float32[np.ndarray, "v c _"]]] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    stamps: dict[int, str] = field(default_factory=dict)
    facts: dict[int, ReadFacts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.scores) + len(self.failures)

    def __contains__(self, index: int) -> bool:
        return index in self.scores or index in self.failures

    def update(self, other: "Scored") -> None:
        self.scores.update(other.scores)
        self.failures.update(other.failures)
        self.stamps.update(other.stamps)
        self.facts.update(other.facts)


def open_parts(output: Path, header: Header) -> list[Scored]:
    """What an earlier, unfinished run with this header has done. Refuses a folder where something else was begun."""
    folder = output / FOLDER
    if (folder / HEADER).exists():
        refuse_others(output, _read_header(folder / HEADER), header)
    else:
        _make(folder)
        write_atomically(folder / HEADER, lambda stream: stream.write(header.to_json().encode()))
    return [_read_part(file, header) for file in sorted(folder.glob("*.npz"))]


def write_part(output: Path, part: Scored) -> None:
    """Named after its first video: no two processes write the same one."""
    folder = output / FOLDER
    _make(folder)  # another machine of the run may have another disk
    first = min([*part.scores, *part.failures])
    write_atomically(folder / f"{first:09d}.npz", lambda stream: np.savez(stream, **_arrays(part)))


def remove_parts(output: Path) -> None:
    shutil.rmtree(output / FOLDER, ignore_errors=True)


def refuse_others(output: Path, found: Header, header: Header) -> None:
    """Results of another experiment are neither continued nor overwritten."""
    if differences := found.differences(header):
        raise EvaluationError(
            f"{output} holds an evaluation of {found.model} on {found.data}, which differs from this one"
            f" ({header.model} on {header.data}) in {', '.join(differences)}. Give another folder, or remove this one."
        )


def _arrays(part: Scored) -> dict[str, Any]:
    indices, failed, stamped = sorted(part.scores), sorted(part.failures), sorted(part.stamps)
    tasks = list(part.scores[indices[0]]) if indices else []
    return {
        "indices": np.array(indices, dtype=np.int64),
        "failed": np.array(failed, dtype=np.int64),
        "reasons": np.array([part.failures[index] for index in failed], dtype=np.str_),
        "stamped": np.array(stamped, dtype=np.int64),
        "stamps": np.array([part.stamps[index] for index in stamped], dtype=np.str_),
        "facts": facts_to_array(part.facts),
        **{f"scores.{task}": np.stack([part.scores[index][task] for index in indices]) for task in tasks},
    }


def _read_part(file: Path, header: Header) -> Scored:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return _scored(arrays, header)
    except (BadZipFile, OSError, ValueError, KeyError, EOFError) as error:
        log.warning("%s is damaged (%s); its videos are evaluated again", file, error)
        return Scored()


def _scored(arrays: Mapping[str, Any], header: Header) -> Scored:
    indices = arrays["indices"].tolist()
    tasks = {task: arrays[f"scores.{task}"] for task in header.class_names} if indices else {}
    scores = {index: {task: values[i] for task, values in tasks.items()} for i, index in enumerate(indices)}
    failures = dict(zip(arrays["failed"].tolist(), arrays["reasons"].tolist(), strict=True))
    known = "stamps" in arrays
    stamps = dict(zip(arrays["stamped"].tolist(), arrays["stamps"].tolist(), strict=True)) if known else {}
    return Scored(scores, failures, stamps, facts_from(arrays))


def _read_header(file: Path) -> Header:
    try:
        return Header.from_json(file.read_text(encoding="utf-8"))
    except (ValueError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise EvaluationError(f"{file}: not the start of an evaluation ({error}). Remove the folder.") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EvaluationError(f"{folder}: cannot be made ({error.strerror or error}).") from error
