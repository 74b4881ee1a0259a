"""The report of a probe: plain values (`report.json`), a self-contained page (`report.html`), and lines of text."""

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from motionformer.data import ClipReader
from motionformer.data.record import Annotations
from motionformer.errors import VideoError
from motionformer.inference.metrics import confusion_matrix, show_interval, show_share, wilson
from motionformer.inference.pictures import draw_confusion
from motionformer.probing.cache import FeatureCache
from motionformer.probing.selection import Clips, Tried, extrapolate
from motionformer.runs import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEAR = 0.95
"""Cosine of two clips' centred frame vectors from which they are called near-duplicates."""
_MAX_WRONG = 40
_FILMSTRIP = 4
"""Frames of a thumbnail."""


def summarise(
    data: Clips, features: FeatureCache, tried: dict[str, Tried], chosen: Tried, scores: Tensor, notes: Sequence[str]
) -> dict[str, Any]:
    """Everything that the report tells, in plain values."""
    right = scores.argmax(dim=-1) == data.test_labels
    records = data.annotations.records
    return {
        "chosen": chosen.kind.name,
        "classes": list(data.class_names),
        "clip": features.about["clip"],
        "cross_validation": _interval(chosen.correct, data.num_crossed),
        "test": _interval(int(right.sum()), len(right)),
        "heads": [_head_values(one, data.num_crossed) for one in tried.values()],
        "what_more_clips_would_bring": extrapolate(chosen.curve),
        "confusion": confusion_matrix(scores.numpy(), data.test_labels.numpy()).tolist(),
        "groups": _by_group(data, chosen, right),
        "wrong": [
            {
                "path": str(records[data.test[i]].path),
                "class": data.class_names[int(data.test_labels[i])],
                "predicted": data.class_names[int(scores[i].argmax())],
                "score": float(scores[i].max()),
            }
            for i in torch.nonzero(~right).flatten().tolist()
        ],
        "near_duplicates": find_near_duplicates(features, data),
        "unreadable": [
            {"path": str(records[index].path), "reason": why} for index, why in sorted(features.failures.items())
        ],
        "videos": {"train": len(data.train), "test": len(data.test), "never_held_out": int((data.folds < 0).sum())},
        "features": {
            "folder": str(features.folder),
            "computed": features.computed,
            "bytes": features.num_bytes,
            "tokens": features.has_tokens,
        },
        "notes": list(notes),
    }


def find_near_duplicates(features: FeatureCache, data: Clips) -> dict[str, Any]:
    """Held-out clips that look almost like a training clip, frame by frame: memorising is enough for them."""
    train, test = (features.pooled("concat", part) for part in (data.train, data.test))
    mean = train.mean(dim=0)
    train, test = (torch.nn.functional.normalize(part - mean, dim=1) for part in (train, test))
    cosine, nearest = (test @ train.T).max(dim=1)
    records = data.annotations.records
    pairs = [
        {
            "held_out": str(records[data.test[i]].path),
            "training": str(records[data.train[int(nearest[i])]].path),
            "cosine": float(cosine[i]),
        }
        for i in cosine.argsort(descending=True).tolist()
        if cosine[i] >= NEAR
    ]
    return {"threshold": NEAR, "pairs": pairs, "highest": float(cosine.max())}


def describe(report: dict[str, Any]) -> list[str]:
    """The report in a few lines."""
    test, crossed = report["test"], report["cross_validation"]
    lines = [
        f"{report['chosen']}: {show_share(test['correct'], test['videos'])} of the held-out videos correct",
        f"cross-validated: {show_share(crossed['correct'], crossed['videos'])}; slightly too good: it chose the head",
    ]
    more = report["what_more_clips_would_bring"]
    if more is not None:
        lines.append(
            f"with twice as many clips perhaps {100 * more['x2']:.0f} %, with four times {100 * more['x4']:.0f} % (the"
            " learning curve extended, not measured)"
        )
    pairs = report["near_duplicates"]["pairs"]
    if pairs:
        lines.append(
            f"{len(pairs)} held-out videos look almost like a training video (such as {pairs[0]['held_out']} and"
            f" {pairs[0]['training']}): the accuracy is too good"
        )
    if report["unreadable"]:
        first = report["unreadable"][0]
        lines.append(
            f"{len(report['unreadable'])} videos could not be read, such as {first['path']}: {first['reason']}"
        )
    return [*lines, *(f"note: {note}" for note in report["notes"])]


def write_report(report: dict[str, Any], folder: Path, features: FeatureCache, data: Clips) -> None:
    """Write `report.json` and `report.html`."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    write_atomically(folder / "report.json", json.dumps(report, indent=1, allow_nan=False))
    loader = PackageLoader("motionformer.probing", ".")
    page = Environment(loader=loader, autoescape=select_autoescape(["html", "j2"]), trim_blocks=True)
    counts = np.array(report["confusion"])
    text = page.get_template("report.html.j2").render(
        report=report,
        lines=describe(report),
        curve=_svg(_draw_curve(report)),
        confusion=_svg(draw_confusion(counts, tuple(report["classes"]))),
        wrong=[
            {**one, "picture": _filmstrip(features, data.annotations, one["path"])}
            for one in report["wrong"][:_MAX_WRONG]
        ],
        interval=lambda sure: show_interval(sure["low"], sure["high"]),
        percent=lambda value: f"{100 * value:.1f}",
    )
    write_atomically(folder / "report.html", text)


def _head_values(tried: Tried, num_crossed: int) -> dict[str, Any]:
    return {
        "head": tried.kind.name,
        "what": tried.kind.what,
        "cross_validation": _interval(tried.correct, num_crossed),
        "best": asdict(tried.best),
        "sweep": [asdict(setting) | {"correct": correct} for setting, correct in tried.sweep],
        "curve": [asdict(point) | {"accuracy": point.accuracy} for point in tried.curve],
        "parameters": tried.parameters,
        "cpu_seconds": tried.cpu_seconds,
    }


def _by_group(data: Clips, chosen: Tried, right: Tensor) -> list[dict[str, Any]]:
    """Of each group, cross-validated and held out; empty where videos have no groups."""
    records = data.annotations.records
    counts: dict[str, dict[str, list[bool]]] = {}
    for indices, correct, part in ((data.train, chosen.right, "cross_validation"), (data.test, right, "test")):
        for position, index in enumerate(indices):
            if records[index].group and (part == "test" or data.folds[position] >= 0):
                of_group = counts.setdefault(records[index].group, {"cross_validation": [], "test": []})
                of_group[part].append(bool(correct[position]))
    return [
        {"group": group, **{part: _interval(sum(of), len(of)) for part, of in parts.items() if of}}
        for group, parts in sorted(counts.items())
    ]


def _draw_curve(report: dict[str, Any]) -> "Figure":
    """Cross-validated accuracy against training clips per class, every head; the chosen one thick."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for head in [head for head in report["heads"] if len(head["curve"]) > 1 or head["head"] == report["chosen"]]:
        sizes = [point["clips"] for point in head["curve"]]
        is_chosen = head["head"] == report["chosen"]
        values = [100 * point["accuracy"] for point in head["curve"]]
        axes.plot(sizes, values, marker="o", label=head["head"], lw=2.6 if is_chosen else 1.2, ms=6 if is_chosen else 4)
    more = report["what_more_clips_would_bring"]
    chosen = next(head for head in report["heads"] if head["head"] == report["chosen"])
    if more is not None:
        last = chosen["curve"][-1]
        axes.plot(
            [factor * last["clips"] for factor in (1, 2, 4)],
            [100 * last["accuracy"], 100 * more["x2"], 100 * more["x4"]],
            color="0.5",
            ls=":",
            label="extrapolated",
        )
    axes.set_xscale("log")
    ticks = sorted({round(point["clips"]) for point in chosen["curve"]})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="training clips per class", ylabel="cross-validated accuracy, %")
    axes.axhline(100 / len(report["classes"]), color="0.8", lw=0.8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _svg(figure: "Figure") -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _filmstrip(features: FeatureCache, annotations: Annotations, path: str) -> str:
    """Some frames of the clip side by side, as a data address; empty where it is gone meanwhile."""
    from PIL import Image

    record = next(record for record in annotations if str(record.path) == path)
    reader: ClipReader = features.source.reader
    try:
        views = reader.read(record)
    except VideoError:
        return ""
    shown = views.shown[0]
    picked = [shown[round(i * (len(shown) - 1) / (_FILMSTRIP - 1))] for i in range(_FILMSTRIP)]
    strip = np.concatenate([views.frames[i].numpy() for i in picked], axis=1)
    out = io.BytesIO()
    Image.fromarray(strip).save(out, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def _interval(correct: int, total: int) -> dict[str, float | int]:
    low, high = wilson(correct, total)
    return {"accuracy": correct / max(1, total), "correct": correct, "videos": total, "low": low, "high": high}
