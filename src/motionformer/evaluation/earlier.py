"""What an earlier evaluation left in a folder, finished or not, and whether its videos are still the same files.

A video that could not be read and has changed since is tried again: there is no result to lose. A video that was
scored and has changed since is refused, as all other data are. Scores outlive files that are no longer there.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from motionformer.errors import EvaluationError
from motionformer.evaluation.parts import Scored, open_parts, refuse_others
from motionformer.evaluation.results import RESULTS, Header, Results
from motionformer.runs import GONE, is_stamp_of


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
