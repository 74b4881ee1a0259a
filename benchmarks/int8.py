"""Is a model better off with 8-bit weights on a CPU? Size, speed, agreement and accuracy, all in one run.

    python -m benchmarks.int8 motion-tiny --clips 512     # torchao, any weights of ours
    motionformer export WEIGHTS model.onnx
    python -m benchmarks.int8 model.onnx                  # onnxruntime, an exported file

The contestants take turns: float32, 8-bit weights with float32 arithmetic, 8-bit weights and activations. torchao's
also without the projections along time, which are folded only while they are plain layers. Clips are rendered moving
discs of the validation split; accuracy is on them, for a model of their eight classes.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from benchmarks.timing import compare
from motionformer.data.motion import MotionBenchmark
from motionformer.models import InputSpec
from motionformer.video.transforms import eval_transform

CLIPS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clips", type=int, default=CLIPS, help="weights of ours: clips of the accuracy")
    parser.add_argument("--level", default="easy", help="weights of ours: level of the motion benchmark")
    args = parser.parse_args()
    if args.model.endswith(".onnx"):
        compare_files(args)
    else:
        compare_models(args)


def compare_models(args: argparse.Namespace) -> None:
    import torch
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_

    from motionformer import load_model
    from motionformer.inference.metrics import show_share

    torch.set_num_threads(args.threads)
    kinds = {
        "int8 weights": Int8WeightOnlyConfig(),
        "int8 weights and activations": Int8DynamicActivationInt8WeightConfig(),
    }
    models = {"float32": load_model(args.model)}
    for name, kind in kinds.items():
        for where, kept in (("", ()), (", not along time", (".time.",))):
            model = models[name + where] = load_model(args.model)
            quantize_(
                model,
                kind,
                lambda layer, path, kept=kept: (
                    isinstance(layer, torch.nn.Linear) and not any(part in path for part in kept)
                ),
            )
    spec = models["float32"].config.input
    videos = MotionBenchmark(args.level, "val", args.clips, frames=spec.frames, stride=spec.stride, size=spec.height)
    transform = eval_transform(spec)
    made = [videos[i] for i in range(args.clips)]
    clips, labels = torch.stack([transform(one.frames) for one in made]), torch.tensor([one.label for one in made])
    with torch.inference_mode():
        one = clips[:1]
        seconds = compare({name: lambda model=model: model(one) for name, model in models.items()}, args.rounds)
        outputs = {name: torch.cat([model(part) for part in clips.split(16)]) for name, model in models.items()}
    exact = outputs["float32"]
    runs = f"best of {args.rounds} runs in turns"
    print(f"{args.model}, {args.threads} thread(s), {runs}, {args.clips} clips ({args.level})")
    print("| weights | MB | ms a clip | speed | top-1 | same first output |")
    print("|---|---|---|---|---|---|")
    for name, model in models.items():
        right = int((outputs[name].argmax(1) == labels).sum())
        same = float((outputs[name].argmax(1) == exact.argmax(1)).float().mean())
        cost = f"{stored(model) / 1e6:.2f} | {seconds[name] * 1e3:.2f} | {seconds['float32'] / seconds[name]:.2f}×"
        print(f"| {name} | {cost} | {show_share(right, args.clips)} | {same:.3f} |")


def stored(model) -> int:
    """Bytes of its weights as they are saved."""
    import io

    import torch

    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell()


def compare_files(args: argparse.Namespace) -> None:
    args.model = Path(args.model)
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "float32": args.model,
            "int8 weights and activations": dynamic(args.model, Path(folder) / "dynamic.onnx"),
            "int8 weights": weight_only(args.model, Path(folder) / "weights.onnx"),
        }
        sizes = {name: path.stat().st_size for name, path in files.items()}
        sessions = {name: open_session(path, args.threads) for name, path in files.items()}
    clips = make_clips(sessions["float32"])
    seconds = compare({name: lambda s=s: s.run(None, {"clip": clips[:1]}) for name, s in sessions.items()}, args.rounds)
    outputs = {
        name: np.concatenate([s.run(None, {"clip": clips[i : i + 1]})[0] for i in range(CLIPS)])
        for name, s in sessions.items()
    }
    exact = outputs["float32"]
    spread = np.linalg.norm(exact - exact.mean(axis=0))  # what tells clips apart, not what they share
    print(f"{args.model.name}, {args.threads} thread(s), best of {args.rounds} runs in turns, {CLIPS} clips")
    print("| weights | MB | ms a clip | speed | error / spread of outputs over clips | same first output |")
    print("|---|---|---|---|---|---|")
    for name in files:
        error = np.linalg.norm(outputs[name] - exact) / spread
        same = (outputs[name].argmax(axis=1) == exact.argmax(axis=1)).mean()
        speed = seconds["float32"] / seconds[name]
        cost = f"{sizes[name] / 1e6:.1f} | {seconds[name] * 1e3:.1f} | {speed:.2f}×"
        print(f"| {name} | {cost} | {error:.3f} | {same:.2f} |")


def dynamic(source: Path, target: Path) -> Path:
    network = onnx.load(source)
    del network.graph.value_info[:]  # the quantiser transposes weights and then trips over their recorded shapes
    plain = target.with_suffix(".plain.onnx")
    onnx.save(network, plain)
    kinds = ["MatMul", "Gemm"]
    quantize_dynamic(plain, target, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=kinds)
    return target


def weight_only(source: Path, target: Path) -> Path:
    quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=8, block_size=128, is_symmetric=True)
    quantizer.process()
    onnx.save(quantizer.model.model, target)
    return target


def open_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def make_clips(session: onnxruntime.InferenceSession) -> np.ndarray:
    spec = InputSpec(**json.loads(session.get_modelmeta().custom_metadata_map["clip"]))
    videos = MotionBenchmark("hard", "val", CLIPS, frames=spec.frames, size=max(spec.height, spec.width))
    transform = eval_transform(spec)
    return np.stack([transform(videos[i].frames).numpy() for i in range(CLIPS)])


if __name__ == "__main__":
    main()
