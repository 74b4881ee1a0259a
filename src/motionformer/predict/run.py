"""Many videos to one file: shared among processes, kept as they come, put together in the order given at the end.

What a video's entry is does not depend on the videos before it, so an interrupted run, and one by several processes,
gives the file that one run would have given, byte for byte.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from motionformer.data import Failure
from motionformer.errors import VideoError
from motionformer.evaluation.several import find_processes
from motionformer.predict.journal import Entry, Journal, read_journal, remove_journal
from motionformer.predict.predictor import Predictor
from motionformer.runs import stamp_video

Work = Callable[[Sequence[Path]], Iterator[Entry]]
"""Paths to entries, in order. An entry is plain values for JSON; that of a failed video has "failed"."""


def run(
    paths: Sequence[Path],
    work: Work,
    *,
    header: Mapping[str, Any],
    journal: Path | None = None,
    resume: bool = False,
    on_entry: Callable[[Entry], None] = lambda entry: None,
) -> list[Entry]:
    """The entries of all paths, in their order, in every process.

    With `journal`, every entry is on the disk before the next video begins. `resume` goes on with what is there.
    """
    processes = find_processes()
    marks = {path: stamp_video(path) for path in paths}

    def begin() -> dict[tuple[str, str], Entry]:
        if journal is None:
            return {}
        if not resume:
            remove_journal(journal)
        return read_journal(journal, header)

    done = processes.first_does(begin)
    left = [path for path in paths if (str(path), marks[path]) not in done]
    for path in paths if processes.is_first else ():
        if (entry := done.get((str(path), marks[path]))) is not None:
            on_entry(entry)
    mine: dict[str, Entry] = {}
    own = processes.share(left)
    with ExitStack() as stack:
        writing = None if journal is None else stack.enter_context(Journal(journal, header, processes.rank))
        for path, entry in zip(own, work(own), strict=True):
            if writing is not None:
                writing.add(str(path), marks[path], entry)
            mine[str(path)] = entry
            on_entry(entry)
    for share in processes.gather(mine):
        done.update({(key, marks[Path(key)]): entry for key, entry in share.items()})
    return [done[str(path), marks[path]] for path in paths]


class PredictVideos:
    """The work of `motionformer predict`."""

    def __init__(self, predictor: Predictor, top: int, num_workers: int = 0) -> None:
        self.predictor, self.top, self.num_workers = predictor, top, num_workers

    def __call__(self, paths: Sequence[Path]) -> Iterator[Entry]:
        for path, found in zip(paths, self.predictor.predict_many(paths, self.num_workers), strict=True):
            yield failed(path, found.reason) if isinstance(found, Failure) else found.to_dict(self.top)


class PredictTimelines:
    """The work of `motionformer predict --timeline`."""

    def __init__(
        self,
        predictor: Predictor,
        top: int,
        threshold: float,
        hop: float | None = None,
        window: float | None = None,
        draw: "Callable[[Any], None] | None" = None,
    ) -> None:
        self.predictor, self.top, self.threshold, self.hop, self.window = predictor, top, threshold, hop, window
        self.draw = draw

    def __call__(self, paths: Sequence[Path]) -> Iterator[Entry]:
        for path in paths:
            try:
                timeline = self.predictor.timeline(path, hop=self.hop, window=self.window)
            except VideoError as error:
                yield failed(path, error.full_reason)
                continue
            if self.draw is not None:
                self.draw(timeline)
            yield timeline.to_dict(self.threshold, self.top)


def failed(path: Path, reason: str) -> Entry:
    return {"video": str(path), "failed": reason}
