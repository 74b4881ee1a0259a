"""EPIC-Kitchens-100: an action is a verb and a noun, and is right when both are (method.md §6).

The two heads are taken as independent: the score of an action is the product of its verb's and its noun's.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int

from motionformer.errors import EvaluationError
from motionformer.evaluation.results import Results, write_atomically

VERSION, CHALLENGE, NUM_ACTIONS = "0.2", "action_recognition", 100


def is_epic(results: Results) -> bool:
    return set(results.tasks) == {"verb", "noun"}


def is_action_in_top(
    verb: Float32[np.ndarray, "n v"],
    noun: Float32[np.ndarray, "n o"],
    verb_labels: Int[np.ndarray, " n"],
    noun_labels: Int[np.ndarray, " n"],
    top: int,
) -> Bool[np.ndarray, " n"]:
    """Whether the true pair is among the `top` best of all pairs. For `top=1`: whether verb and noun are right."""
    found = np.zeros(len(verb), dtype=bool)
    for i in np.flatnonzero(~np.isnan(verb).any(axis=1)):
        product = _products(verb[i], noun[i])
        true = verb_labels[i] * noun.shape[1] + noun_labels[i]
        before = (product > product[true]).sum() + (product[:true] == product[true]).sum()
        found[i] = before < top
    return found


def best_actions(
    verb: Float32[np.ndarray, " v"], noun: Float32[np.ndarray, " o"], count: int
) -> list[tuple[tuple[int, int], float]]:
    """The pairs with the largest products and these, best first. Ties go to the lower verb, then the lower noun."""
    product = _products(verb, noun)
    order = np.argsort(-product, kind="stable")[:count]
    return [((int(i) // len(noun), int(i) % len(noun)), float(product[i])) for i in order]


def challenge_submission(
    results: Results, *, pretraining: int = -1, labels: int = -1, data: int = -1
) -> dict[str, Any]:
    """What the action recognition challenge takes, as `test.json` in a zip.

    Args:
        pretraining, labels, data: the supervision levels `sls_pt`, `sls_tl`, `sls_td` of the challenge's rules; -1
            says that they were not declared.

    A video that could not be read has zeros: the challenge wants every action.
    """
    if not is_epic(results):
        raise EvaluationError(
            f"the challenge wants verb and noun scores; these results have {', '.join(results.tasks)}."
        )
    verbs, nouns = (np.nan_to_num(results.averaged(task)) for task in ("verb", "noun"))
    return {
        "version": VERSION,
        "challenge": CHALLENGE,
        "sls_pt": pretraining,
        "sls_tl": labels,
        "sls_td": data,
        "results": {name: _entry(verbs[i], nouns[i]) for i, name in enumerate(results.ids)},
    }


def write_challenge(results: Results, file: Path, **levels: int) -> None:
    """Write `challenge_submission(results, **levels)` as JSON to `file`."""
    submission = challenge_submission(results, **levels)
    write_atomically(file, lambda stream: stream.write(json.dumps(submission).encode()))


def _entry(verb: Float32[np.ndarray, " v"], noun: Float32[np.ndarray, " o"]) -> dict[str, dict[str, float]]:
    return {
        "verb": {str(i): float(score) for i, score in enumerate(verb)},
        "noun": {str(i): float(score) for i, score in enumerate(noun)},
        "action": {f"{v},{n}": score for (v, n), score in best_actions(verb, noun, NUM_ACTIONS)},
    }


def _products(verb: Float32[np.ndarray, " v"], noun: Float32[np.ndarray, " o"]) -> Float64[np.ndarray, " a"]:
    """Of every verb with every noun. Exact, since the product of two floats fits a double: no ties but real ones."""
    return np.outer(verb.astype(np.float64), noun.astype(np.float64)).ravel()
