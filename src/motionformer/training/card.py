"""The run card: what was run, with what, on what, and what came out. `card.json` for scripts, `card.md` for people.

It is written last: a folder with a card holds a finished run.
"""

import importlib.metadata
import json
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import motionformer
from motionformer.inference.metrics import show_share
from motionformer.models.config import ModelConfig
from motionformer.models.costs import measure
from motionformer.runs import write_atomically

CARD, READABLE = "card.json", "card.md"
PACKAGES = ("torch", "lightning", "torchmetrics", "omegaconf", "numpy", "av", "safetensors")


def write_card(folder: Path, card: dict[str, Any]) -> None:
    write_atomically(folder / READABLE, to_markdown(card))
    write_atomically(folder / CARD, json.dumps(card, indent=2) + "\n")


def read_card(folder: Path) -> dict[str, Any] | None:
    """The card of a finished run, or None."""
    file = folder / CARD
    if not file.exists():
        return None
    card: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return card


def describe_software() -> dict[str, Any]:
    versions = {"motionformer": motionformer.__version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"versions": versions, "commit": git_commit(), "platform": platform.platform()}


def describe_machine() -> dict[str, Any]:
    """Devices, and the most memory this process has held: of the GPU where there is one, else of the computer."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return {"devices": names, "peak_memory_bytes": torch.cuda.max_memory_allocated(), "memory": "GPU"}
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    threads = torch.get_num_threads()
    return {"devices": [f"CPU, {threads} threads"], "peak_memory_bytes": peak, "memory": "resident"}


def describe_model(config: ModelConfig) -> dict[str, Any]:
    cost = measure(config)
    return {
        "what": f"{config.attention} attention, {config.dim} wide, {config.depth} layers",
        "parameters": cost.parameters,
        "multiply_adds": cost.macs,
        "input": config.to_dict()["input"],
    }


def git_commit() -> str | None:
    """The commit of the checkout this package runs from, marked where files were changed; None if installed, also
    where that is inside somebody else's repository."""
    here = Path(motionformer.__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", Path(motionformer.__file__).name)
        commit = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit} (changed)" if changed else commit


def to_markdown(card: dict[str, Any]) -> str:
    plan, model, results = card["plan"], card["model"], card["results"]
    rows = {
        "model": f"{model['what']}, {model['parameters'] / 1e6:.2f} M parameters, "
        f"{model['multiply_adds'] / 1e9:.3f} G multiply-adds a clip",
        "data": f"{card['data']['train']['how']}; validation: {card['data']['val']['how']}",
        "steps": f"{plan['total_steps']} of {card['recipe']['global_batch']} clips, {plan['steps_per_epoch']} an epoch",
        "dealt": f"{plan['processes']} processes × {plan['clips_at_once']} clips × {plan['accumulation']} a step",
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
    lines += ["", f"The saved model is {which_epoch(card)}. `recipe.yaml` repeats the run."]
    return "\n".join(lines) + "\n"


def which_epoch(card: dict[str, Any]) -> str:
    """Whose weights the saved model has, and what that means for its figure on the validation videos."""
    results = card["results"]
    kept = results.get("kept", results["last"])
    if card["recipe"].get("keep_epoch", "last") == "best" and kept["step"] == results["best"]["step"]:
        chosen = "chosen on these validation videos: the figure is optimistic"
        return f"of epoch {kept['epoch']:g} of {card['recipe']['epochs']}, the best, {chosen}"
    return f"of the last epoch ({kept['epoch']:g}), not the best"


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
