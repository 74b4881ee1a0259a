"""Which runtime is fastest on a CPU, for the same model in one run: PyTorch eager, onnxruntime, OpenVINO.

    python -m benchmarks.backends --model motionformer-small

The model is exported for each (and thereby checked against PyTorch); the runtimes then take turns on the same random
clips in one process, and the best of each counts. Processor seconds are the figure to trust where other work runs on
the machine. OpenVINO is also run in bfloat16, which it would choose by itself where the CPU has it.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from motionformer import create_model
from motionformer.export import ExportedModel, export_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="motionformer-small")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("build"))
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    torch.manual_seed(0)
    model = create_model(words.model).eval()
    spec = model.config.input
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode(False):
        files = {suffix: export_model(model, Path(folder) / f"model{suffix}") for suffix in (".onnx", ".xml")}
        runtimes: dict[str, torch.nn.Module] = {
            "PyTorch, eager": model,
            "onnxruntime": ExportedModel(files[".onnx"].path),
            "OpenVINO": ExportedModel(files[".xml"].path),
            "OpenVINO, bf16": ExportedModel(files[".xml"].path, "bf16"),
        }
    rows = []
    with torch.inference_mode():
        for batch in words.batch_sizes:
            clips = torch.randn(batch, 3, spec.frames, spec.height, spec.width)
            exact = model(clips)
            found = measure({name: lambda m=m, c=clips: m(c) for name, m in runtimes.items()}, words.rounds)
            for name, (wall, processor) in found.items():
                error = float((runtimes[name](clips) - exact).abs().max() / exact.abs().max())
                rows.append({"batch": batch, "runtime": name, "wall": wall, "processor": processor, "error": error})
    words.out.mkdir(parents=True, exist_ok=True)
    report = {**vars(words), "out": str(words.out), "rows": rows}
    (words.out / "backends.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
    print(f"{words.model}, {words.threads} thread(s), best of {words.rounds} runs in turns")
    print("| batch | runtime | ms wall | ms processor | speed (processor) | largest error / largest output |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        eager = next(one for one in rows if one["batch"] == row["batch"])
        times = f"{1e3 * row['wall']:.0f} | {1e3 * row['processor']:.0f} | {eager['processor'] / row['processor']:.2f}×"
        print(f"| {row['batch']} | {row['runtime']} | {times} | {row['error']:.1e} |")


def measure(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Wall and processor seconds of the fastest of `rounds` runs of each, after one warm-up, all taking turns."""
    best = dict.fromkeys(contestants, (float("inf"), float("inf")))
    for run in contestants.values():
        run()
    for _ in range(rounds):
        for name, run in contestants.items():
            wall, processor = time.perf_counter(), time.process_time()
            run()
            spent = time.perf_counter() - wall, time.process_time() - processor
            best[name] = (min(best[name][0], spent[0]), min(best[name][1], spent[1]))
    return best


if __name__ == "__main__":
    main()
