"""The evaluation loop: every view of every video through the model, once. Top-down: read, score, keep, assemble.

Videos are taken in groups of whole videos that fill a batch; a video with more views than a batch holds is split, so
memory depends on the batch and never on the number of views. Groups are cut by index, so who computes a group, and
after how many interruptions, does not change a bit of it.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from motionformer.data import Failure
from motionformer.data.lists import original_name
from motionformer.deprecation import check_arguments, renamed_arguments
from motionformer.distributed import current_rank
from motionformer.errors import EvaluationError, StoppedError
from motionformer.inference.classes import known_labels, match_classes
from motionformer.inference.inputs import show_progress as show_bar
from motionformer.inference.results import RESULTS, UNKNOWN, Header, Results
from motionformer.inference.scorer import Precision, Scorer, Scoring, Sigmoid
from motionformer.inference.views import Entry, ReadVideo, VideoSource, find_overlap, model_fingerprint, open_source
from motionformer.logging import show_count
from motionformer.models import ModelConfig, Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.models.motionformer import evaluating
from motionformer.runs import GONE, Journal, check_output, is_stamp_of, read_journal, remove_journal, stamp_video
from motionformer.stopping import is_stop_requested, keep_from_signals, stop_reason
from motionformer.video import ReadFacts
from motionformer.weights import load_model

log = logging.getLogger("motionformer")
PARTS = "parts"
"""The journal of an unfinished evaluation, in its folder."""
_Read = tuple[int, ReadVideo | Tensor | Failure]
_Done = dict[int, dict[str, Any]]
"""By index of the video: `scores` by task `[v c k]` and `facts`, or why it `failed`; and the `stamp` of its file."""


@renamed_arguments(batch="batch_size", seconds_a_part=None)
def evaluate(
    model: nn.Module | str | Path,
    source: VideoSource | str | Path,
    *,
    name: str | None = None,
    device: str | torch.device | None = None,
    precision: Precision = "32",
    batch_size: int = 8,
    num_workers: int = 0,
    scoring: Scoring | None = None,
    output: str | Path | None = None,
    show_progress: bool = True,
    allow_overlap: bool = False,
    **options: Any,
) -> Results:
    """Score every view of every video; the results are the same on every rank of a distributed job.

    Args:
        model: a model, or the name or path of weights as `load_model` takes it.
        source: an address (a list, a folder, `motion:LEVEL[:CLIPS]`), or a source of `open_source`.
        name: of the model in reports.
        device: where to compute; the model is moved there. [default: where the model is]
        precision: "32", "bf16" or "16".
        batch_size: clips (views) per forward pass.
        num_workers: processes that decode.
        scoring: `Softmax()`, or `Sigmoid()` for any number of classes per video. [default: what the model was trained
            for]
        output: folder for `results.csv` and `results.npz`. While running, a journal is kept there: the same call
            resumes after an interruption, returns at once when all is done, and tries failed videos again whose files
            have changed since.
        show_progress: a progress bar on stderr, if it is a terminal.
        allow_overlap: also score videos that the model was trained on (`Results.overlap` tells which).
        options: of `open_source` (views, crops, split, …), where `source` is an address.

    Returns:
        Labels and scores of every video; `summarise` computes the metrics.

    Raises:
        EvaluationError: videos that the model was trained on; other classes than the model's; an output folder of
            another model, data or protocol, or of files that have changed since they were scored.
        StoppedError: SIGTERM or SIGUSR1 came, in a command or inside `motionformer.stopping.stop_on_signals`.

    Example:
        ```python
        results = evaluate("k400_motionformer_224_16x4", "k400/val.csv", views=10, crops=3, output="results/k400")
        summarise(results)["tasks"]["class"]["all"]["top1"]
        ```
    """
    if options:
        check_arguments("evaluate", options, evaluate, open_source)
    if not isinstance(model, nn.Module):
        name, model = name or str(model), load_labelled(model)
    if isinstance(source, (str, Path)):
        source = open_for(model, source, **options)
    elif options:
        raise TypeError(f"{', '.join(options)}: options of an address; this source is open already.")
    scoring = scoring or _fit_scoring(model, source)
    rank = current_rank()
    overlap = rank.on_zero(lambda: find_overlap(model, source))
    if not allow_overlap:
        _check_overlap(overlap, source)
    columns, class_names = match_classes(getattr(model, "config", None), source.class_names)
    scorer = Scorer(model, device, batch_size=batch_size, precision=precision, scoring=scoring, columns=columns)
    header = _header(scorer, source, name, class_names)
    folder = None if output is None else Path(output)
    stamps: tuple[str, ...] = ()
    done: _Done = {}
    if folder is not None:
        rank.check_shared(folder)
        stamps = rank.on_zero(lambda: _stamp_videos(source))
        earlier = rank.on_zero(lambda: _find_earlier(folder, header, source.entries, stamps))
        if isinstance(earlier, Results):
            log.info("%s: finished earlier; nothing was computed", folder)
            return replace(earlier, overlap=overlap)
        done = earlier
        if (folder / RESULTS).exists():
            log.info("%s: finished earlier; failed videos whose files have changed since are tried again", folder)
    mine = dict(done) if rank.is_zero else {}
    groups = _groups(len(source.entries), batch_size // (header.views * header.crops), done)
    loader = load_groups(source, rank.queue(groups), num_workers, scorer.device)
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        total = len(source.entries)
        advance = stack.enter_context(show_bar("evaluating", total, len(done), show=show_progress))
        parts = None
        if folder is not None:
            parts = stack.enter_context(Journal(folder / PARTS, json.loads(header.to_json()), rank.rank))

        def keep(items: list[_Read]) -> None:
            scored = _score_group(scorer, items, (header.views, header.crops))
            if parts is not None:
                parts.add_all((str(index), stamps[index], entry) for index, entry in scored.items())
            mine.update(scored)
            advance(len(items))

        is_complete = consume(loader, keep, num_workers)
    if not is_complete:
        raise EvaluationError(
            "a process that decodes videos died. A broken file can cause this (`motionformer data check` finds it), or"
            " too little memory (use fewer workers, or a smaller batch). What was written to the output folder is kept:"
            " the same call resumes from there."
        )
    for share in rank.gather(mine):
        done |= share
    if rank.any_stopped() and len(done) < total:
        where = "Nothing is kept without an output folder."
        if folder is not None:
            where = f"What is done is in {folder}: the same command resumes."
        raise StoppedError(f"{stop_reason()}, after {len(done)} of {show_count(total, 'video')}. {where}")
    results = replace(_assemble(source, header, done, stamps), overlap=overlap)
    if folder is not None:
        rank.on_zero(lambda: results.save(folder))
        rank.on_zero(lambda: remove_journal(folder / PARTS))
    return results


def load_labelled(source: str | Path, protocol: SamplingProtocol | None = None) -> Motionformer:
    """The model of `load_model`, with the names of its classes where the user has the data set's own file of them."""
    model = load_model(source, protocol=protocol)
    model.config = replace(model.config, labels=known_labels(source, model.config))
    return model


def open_for(model: nn.Module, address: str | Path, **options: Any) -> VideoSource:
    """The source at an address, cut into views for a model; lists are read with the names of its classes."""
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig):
        raise TypeError("a model without a configuration needs an opened source: open_source(address, spec).")
    if not options.get("class_names") and config.labels is not None:
        # `class 7` is called `7`, as it is in the data and in results of models that know no names
        options["class_names"] = tuple(original_name(name) for name in config.labels)
    return open_source(address, config.input, **options)


def _check_overlap(overlap: dict[str, Any], source: VideoSource) -> None:
    """Raise `EvaluationError` if the model was trained on any of the videos; without labels no metric is too good."""
    if not overlap.get("videos") or all(entry.label is None for entry in source.entries):
        return
    names = ", ".join(overlap["names"][:3]) + (", …" if overlap["videos"] > 3 else "")
    raise EvaluationError(
        f"{source.name}: {overlap['videos']} of {len(source.entries)} videos are training videos of this model"
        f" ({names}): an accuracy on them tells nothing about new videos. Evaluate on videos it has not seen (a run of"
        " `finetune` lists those it held out in val.csv), or use --allow-overlap (allow_overlap=True in Python)."
    )


def _score_group(scorer: Scorer, items: list[_Read], shape: tuple[int, int]) -> _Done:
    """Of (index, views or failure) of some videos."""
    found: _Done = {}
    readable: dict[int, Tensor] = {}
    for index, one in items:
        if isinstance(one, Failure):
            found[index] = {"failed": one.reason}
            continue
        readable[index] = one.views if isinstance(one, ReadVideo) else one
        found[index] = {"facts": astuple(one.facts) if isinstance(one, ReadVideo) else None}
        if len(readable[index]) != shape[0] * shape[1]:
            raise EvaluationError(
                f"video {index} has {show_count(len(readable[index]), 'view')}; expected {shape[0] * shape[1]}."
            )
    scores = scorer(chain.from_iterable(readable.values()))
    for i, index in enumerate(readable):
        rows = slice(i * shape[0] * shape[1], (i + 1) * shape[0] * shape[1])
        found[index]["scores"] = {task: of_all[rows].reshape(*shape, -1) for task, of_all in scores.items()}
    return found


def _groups(num_videos: int, size: int, done: "_Done | frozenset[int]" = frozenset()) -> list[list[int]]:
    """Neighbours by index, without the videos already done."""
    size = max(1, size)
    groups: dict[int, list[int]] = {}
    for index in range(num_videos):
        if index not in done:
            groups.setdefault(index // size, []).append(index)
    return list(groups.values())


def load_groups(
    source: VideoSource, groups: Iterable[list[int]], num_workers: int, device: torch.device
) -> Iterable[list[_Read]]:
    """Groups of (index, views or failure), read by `num_workers` processes."""
    return DataLoader(
        _Items(source),
        batch_sampler=cast(Any, groups),  # it is gone through once
        num_workers=num_workers,
        collate_fn=list,
        pin_memory=device.type == "cuda",
        worker_init_fn=keep_from_signals,
    )


class _Items(Dataset[_Read]):
    def __init__(self, source: VideoSource) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source.entries)

    def __getitem__(self, index: int) -> _Read:
        return index, self.source.read(index)


def consume(groups: Iterable[list[_Read]], keep: Callable[[list[_Read]], None], num_workers: int) -> bool:
    """Whether all came, up to a request to stop.

    A decoder may take its process along; torch reports it wherever the main process happens to be, if it does not
    stumble over the lost connection first, and again at the end of any other process for as long as the loader lives,
    so nothing here holds on to it.
    """
    try:
        for group in groups:
            if is_stop_requested():  # those that were read ahead are read again when the job resumes
                break
            keep(group)
    except (RuntimeError, ConnectionError, EOFError) as error:
        text = str(error)
        is_ours = num_workers == 0 or text.startswith("Caught ")
        if is_ours or (isinstance(error, RuntimeError) and "DataLoader worker" not in text):
            raise  # an error of the source, which a worker handed on
        return False
    return True


def _assemble(source: VideoSource, header: Header, done: _Done, stamps: tuple[str, ...]) -> Results:
    entries = source.entries
    missing = [index for index in range(len(entries)) if index not in done]
    if missing or len(done) != len(entries):
        raise AssertionError(f"{len(missing)} videos were given to no process; the first is {missing[:1]}")
    scores = {
        task: np.full((len(entries), header.views, header.crops, len(names)), np.nan, dtype=np.float32)
        for task, names in header.class_names.items()
    }
    failures, facts = {}, {}
    for index, entry in sorted(done.items()):
        if "failed" in entry:
            failures[index] = entry["failed"]
            continue
        if entry["facts"] is not None:
            facts[index] = ReadFacts(*entry["facts"])
        for task, values in entry["scores"].items():
            scores[task][index] = values
    labels = {task: _labels(entries, task, len(names)) for task, names in header.class_names.items()}
    ids, paths = tuple(entry.id for entry in entries), tuple(entry.path for entry in entries)
    return Results(header, ids, paths, labels, scores, failures, stamps, facts)


def _labels(entries: Sequence[Entry], task: str, num_classes: int) -> Shaped[np.ndarray, "n ..."]:
    found = [entry.label[task] if isinstance(entry.label, Mapping) else entry.label for entry in entries]
    if not any(isinstance(label, tuple) for label in found):
        return np.array([UNKNOWN if label is None else label for label in found], dtype=np.int64)
    several = np.zeros((len(found), num_classes), dtype=bool)
    for entry, row, label in zip(entries, several, found, strict=True):
        if not isinstance(label, tuple):
            raise EvaluationError(f"{entry.id}: its label is {label!r}; other videos have several each (a tuple).")
        row[list(label)] = True
    return several


def _fit_scoring(model: nn.Module, source: VideoSource) -> Scoring:
    """The model's own way of scoring, which must be one for labels like the data's."""
    scoring = Scorer.own_scoring(model)
    labels = [entry.label for entry in source.entries if entry.label is not None]
    has_several, expects_several = any(isinstance(label, tuple) for label in labels), isinstance(scoring, Sigmoid)
    if labels and expects_several and not has_several:
        raise EvaluationError(
            "the model was trained for any number of classes per video, the data has one each: call the column of the"
            " list `labels` if these are all the classes that its videos show."
        )
    if has_several and not expects_several:
        raise EvaluationError(
            "the data has any number of classes per video, the model was trained to choose one (softmax): train it on"
            " such data (`motionformer finetune LIST --init-from MODEL`), or pass scoring=Sigmoid() in Python."
        )
    return scoring


def _header(scorer: Scorer, source: VideoSource, name: str | None, class_names: dict[str, tuple[str, ...]]) -> Header:
    config = getattr(scorer.model, "config", None)
    return Header(
        model=name or getattr(config, "source", None) or type(scorer.model).__name__,
        model_fingerprint=model_fingerprint(scorer.model),
        data=source.name,
        data_fingerprint=_data_fingerprint(source),
        views=source.num_views,
        crops=source.num_crops,
        protocol=json.loads(json.dumps(source.protocol())),  # as it will come back from a file
        scoring=scorer.scoring.name,
        precision=scorer.precision,
        class_names=class_names,
    )


def _data_fingerprint(source: VideoSource) -> str:
    """Changes with the videos' names, their order and their labels; not with the folder they lie in."""
    digest = hashlib.sha256()
    for entry in source.entries:
        label = dict(entry.label) if isinstance(entry.label, Mapping) else entry.label
        digest.update(json.dumps([entry.id, label], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _stamp_videos(source: VideoSource) -> tuple[str, ...]:
    """Of every video what changes when its file does, whatever its name; empty where a video has no file."""
    stamps = {path: stamp_video(Path(path)) for path in {entry.path for entry in source.entries} if path}
    return tuple(stamps.get(entry.path, "") for entry in source.entries)


def _find_earlier(folder: Path, header: Header, entries: Sequence[Entry], stamps: Sequence[str]) -> Results | _Done:
    """Finished results of this evaluation, or what of it need not be computed again.

    A video that could not be read and whose file has changed since is tried again: there is no result to lose. One that
    was scored and has changed since is an error, as any other data are. Scores outlive files that are no longer there.
    """
    found: list[tuple[int, str | None, dict[str, Any]]] = []
    if (folder / RESULTS).exists():
        results = Results.load(folder)
        _check_same(folder, results.header, header)
        found = _entries_of(results)
        if len(_drop_stale(folder, found, entries, stamps)) == len(results):
            return results
    found += _read_npz_parts(folder / PARTS, header)
    journal = read_journal(folder / PARTS, json.loads(header.to_json()), may_differ=("model", "data"))
    found += [(int(key), stamp, entry) for (key, stamp), entry in journal.items()]
    done = _drop_stale(folder, found, entries, stamps)
    check_output(folder / RESULTS)
    return done


def _drop_stale(
    folder: Path,
    found: list[tuple[int, str | None, dict[str, Any]]],
    entries: Sequence[Entry],
    stamps: Sequence[str],
) -> _Done:
    done: _Done = {}
    replaced = set[int]()
    for index, stamp, entry in found:
        changed = stamp is not None and stamps[index] not in (stamp, GONE)
        if changed and "scores" in entry and not is_stamp_of(stamp or "", Path(entries[index].path)):
            replaced.add(index)
        if not (changed and "failed" in entry):
            done[index] = entry
    if replaced:
        raise EvaluationError(
            f"{folder} holds the scores of other files: {len(replaced)} of {len(entries)} videos have another size or"
            f" modification time than when they were scored, the first is {entries[min(replaced)].path}. Choose another"
            " folder, or remove this one."
        )
    return done


def _check_same(folder: Path, found: Header, header: Header) -> None:
    if differences := found.differences(header):
        raise EvaluationError(
            f"{folder} holds an evaluation of {found.model} on {found.data}, which differs from this one"
            f" ({header.model} on {header.data}) in {', '.join(differences)}. Choose another folder or remove this one."
        )


def _entries_of(results: Results) -> list[tuple[int, str | None, dict[str, Any]]]:
    found: list[tuple[int, str | None, dict[str, Any]]] = []
    for index in range(len(results)):
        facts = results.facts.get(index)
        entry: dict[str, Any] = {"failed": results.failures[index]} if index in results.failures else {}
        if not entry:
            scores = {task: values[index] for task, values in results.scores.items()}
            entry = {"scores": scores, "facts": None if facts is None else astuple(facts)}
        found.append((index, results.stamps[index] if results.stamps else None, entry))
    return found


def _read_npz_parts(folder: Path, header: Header) -> list[tuple[int, str | None, dict[str, Any]]]:
    """What version 0.1 kept of an unfinished evaluation: `header.json`, and npz files of some videos each."""
    found: list[tuple[int, str | None, dict[str, Any]]] = []
    if not (folder / "header.json").exists():
        return found
    try:
        earlier = Header.from_json((folder / "header.json").read_text(encoding="utf-8"))
    except (ValueError, TypeError, AttributeError) as error:
        raise EvaluationError(
            f"{folder / 'header.json'}: not the start of an evaluation ({error}). Remove the folder."
        ) from error
    _check_same(folder.parent, earlier, header)
    for file in sorted(folder.glob("*.npz")):
        try:
            with np.load(file, allow_pickle=False) as arrays:
                facts = json.loads(str(arrays["facts"])) if "facts" in arrays else {}
                known = "stamps" in arrays
                stamps = dict(zip(arrays["stamped"].tolist(), arrays["stamps"].tolist(), strict=True)) if known else {}
                failed = zip(arrays["failed"].tolist(), arrays["reasons"].tolist(), strict=True)
                part: _Done = {index: {"failed": reason} for index, reason in failed}
                for i, index in enumerate(arrays["indices"].tolist()):
                    scores = {task: arrays[f"scores.{task}"][i] for task in header.class_names}
                    part[index] = {"scores": scores, "facts": facts.get(str(index))}
        except (BadZipFile, OSError, ValueError, KeyError, EOFError) as error:
            log.warning("%s is damaged (%s); its videos are evaluated again", file, error)
            continue
        found += [(index, stamps.get(index), entry) for index, entry in part.items()]
    return found
