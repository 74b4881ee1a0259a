"""The run card: recipe, data, hardware, software and results; `card.json` for scripts, `card.md` to read.

It is written last: a folder with a card holds a finished run.
"""

import importlib.metadata
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import motionformer
from motionformer.data import Failure, FailurePolicy
from motionformer.inference.metrics import show_share
from motionformer.models.config import ModelConfig
from motionformer.models.costs import measure
from motionformer.runs import write_atomically

CARD = "card.json"
_PACKAGES = ("torch", "lightning", "torchmetrics", "omegaconf", "numpy", "av", "safetensors")


def write_card(folder: Path, card: dict[str, Any]) -> None:
    write_atomically(folder / "card.md", _to_markdown(card))
    write_atomically(folder / CARD, json.dumps(card, indent=2) + "\n")


def read_card(folder: Path) -> dict[str, Any] | None:
    """The card of a finished run, or None."""
    file = folder / CARD
    if not file.exists():
        return None
    card: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return card


def describe_environment() -> dict[str, Any]:
    """Devices, peak memory of this process (of the GPU where there is one), versions and commit."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        machine = {"devices": names, "peak_memory_bytes": torch.cuda.max_memory_allocated(), "memory": "GPU"}
    else:
        import resource  # not on every system

        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        device = f"CPU, {torch.get_num_threads()} threads"
        machine = {"devices": [device], "peak_memory_bytes": peak, "memory": "resident"}
    versions = {"motionformer": motionformer.__version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    software = {"versions": versions, "commit": _git_commit(), "platform": platform.platform()}
    return {"machine": machine, "software": software}


def describe_model(config: ModelConfig) -> dict[str, Any]:
    cost = measure(config)
    return {
        "what": f"{config.attention} attention, {config.dim} wide, {config.depth} layers",
        "parameters": cost.parameters,
        "multiply_adds": cost.macs,
        "input": config.to_dict()["input"],
    }


def _git_commit() -> str | None:
    """The commit of this package's checkout, marked where files were changed; None if installed, also inside another
    repository."""
    here = Path(motionformer.__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", Path(motionformer.__file__).name)
        commit = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit} (changed)" if changed else commit


def _to_markdown(card: dict[str, Any]) -> str:
    plan, model, results = card["plan"], card["model"], card["results"]
    rows = {
        "model": f"{model['what']}, {model['parameters'] / 1e6:.2f} M parameters, "
        f"{model['multiply_adds'] / 1e9:.3f} G multiply-adds per clip",
        "data": f"{card['data']['train']['how']}; validation: {card['data']['val']['how']}",
        "steps": f"{plan['total_steps']} of {card['recipe']['global_batch']} clips, "
        f"{plan['steps_per_epoch']} per epoch",
        "batch": f"{plan['processes']} processes × {plan['clips_at_once']} clips × {plan['accumulation']} accumulated",
        "learning rate": f"{plan['lr']:.3g} ({card['recipe']['optimiser']['lr']:g} for "
        f"{card['recipe']['optimiser']['lr_batch']} clips)",
        "seed": card["recipe"]["seed"],
        "failed videos": f"{len(card['failed']['train'])} in training, {len(card['failed']['val'])} in validation",
        "time": f"{card['seconds']:.0f} s",
        "peak memory": f"{card['machine']['peak_memory_bytes'] / 1e6:.0f} MB ({card['machine']['memory']})",
        "devices": ", ".join(card["machine"]["devices"]),
        "commit": card["software"]["commit"] or "not a checkout",
        "versions": ", ".join(f"{name} {version}" for name, version in card["software"]["versions"].items()),
    }
    lines = [f"# {card['recipe']['name']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    lines += ["", "| validation | " + " | ".join(results["last"]) + " |", "|---" * (len(results["last"]) + 1) + "|"]
    for which in ("last", "best"):
        lines.append(f"| {which} | " + " | ".join(f"{value:.4g}" for value in results[which].values()) + " |")
    for name, sure in results.get("confidence", {}).items():
        lines += ["", f"{name} of the saved model: {show_share(sure['correct'], sure['videos'])}."]
    lines += ["", f"The saved model is {describe_kept_epoch(card)}. `recipe.yaml` repeats the run."]
    return "\n".join(lines) + "\n"


def describe_kept_epoch(card: dict[str, Any]) -> str:
    """The epoch of the saved model, and what that means for its metrics on the validation videos."""
    results = card["results"]
    kept = results.get("kept", results["last"])
    if card["recipe"].get("keep_epoch", "last") == "best" and kept["step"] == results["best"]["step"]:
        chosen = "chosen on these validation videos: its metrics are optimistic"
        return f"of epoch {kept['epoch']:g} of {card['recipe']['epochs']}, the best, {chosen}"
    return f"of the last epoch ({kept['epoch']:g}), not the best"


def describe_failures(card: dict[str, Any]) -> list[str]:
    """A sentence for training and one for validation, where videos could not be read."""
    lines = []
    for part, name, effect in (("train", "training", "skipped"), ("val", "validation", "counted as wrong")):
        policy = FailurePolicy.evaluation(card["data"][part]["clips"])
        policy.count(Failure(**values) for values in card["failed"][part])
        if policy.failures:
            lines.append(f"{name}: {policy.summary()}; {effect}")
    return lines


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
