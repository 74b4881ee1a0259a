"""Is an exported model better off with 8-bit weights on a CPU? Size, speed and agreement, all in one run.

    motionformer export WEIGHTS model.onnx
    python -m benchmarks.int8 model.onnx

Three files take turns: float32 as exported, 8-bit weights and activations (onnxruntime's dynamic quantisation), and
8-bit weights with float32 arithmetic (its blockwise MatMulNBits). Clips are rendered moving discs.
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
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
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
