"""Classify a video with an exported model, without motionformer and without PyTorch.

    pip install numpy onnxruntime av
    python run_onnx.py model.onnx clip.mp4

Everything it has to know about clips (frames, stride, size, mean, deviation, channel order, labels) is in the file.
One clip from the middle of the video, centre crop; `motionformer predict` averages several views.
"""

import argparse
import json
from fractions import Fraction
from typing import Any

import av
import numpy as np
import onnxruntime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a file made by `motionformer export MODEL model.onnx`")
    parser.add_argument("video")
    parser.add_argument("--top", type=int, default=5)
    args = parser.parse_args()

    session = onnxruntime.InferenceSession(args.model, providers=["CPUExecutionProvider"])
    stored = session.get_modelmeta().custom_metadata_map
    about = {key: json.loads(stored[key]) for key in ("clip", "outputs", "labels")}
    clip = read_clip(args.video, about["clip"])
    for name, logits in zip(about["outputs"], session.run(about["outputs"], {"clip": clip[None]}), strict=True):
        print(name)
        scores = np.exp(logits[0] - logits[0].max())
        scores /= scores.sum()
        for k in np.argsort(-scores)[: args.top]:
            print(f"  {scores[k]:.4f}  {about['labels'][k] if about['labels'] else k}")


def read_clip(path: str, spec: dict[str, Any]) -> np.ndarray:
    """The middle clip of a video, `[3 t H W]`, as the model was trained on."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        fps = stream.average_rate or Fraction(spec["fps"]).limit_denominator(100_000)
        total = sum(1 for _ in container.decode(stream))  # headers often announce another number
    if total == 0:
        raise SystemExit(f"{path}: no frame could be decoded.")
    wanted = choose_frames(total, fps, spec)
    with av.open(path) as container:
        picked = {i: frame for i, frame in enumerate(container.decode(video=0)) if i in wanted}
    return np.stack([prepare(picked[i], spec) for i in wanted], axis=1)


def choose_frames(total: int, fps: Fraction, spec: dict[str, Any]) -> list[int]:
    """Indices of the clip; the last frame repeats where the video is too short."""
    t = spec["frames"]
    if spec["sampling"] == "segments":  # the middle frame of each of t equal parts
        return [(2 * i + 1) * total // (2 * t) for i in range(t)]
    step = spec["stride"] * fps / Fraction(spec["fps"]).limit_denominator(100_000)
    start = max(0, total - 1 - int((t - 1) * step)) // 2
    return [min(total - 1, start + int(i * step)) for i in range(t)]


def prepare(frame: av.VideoFrame, spec: dict[str, Any]) -> np.ndarray:
    """Short side to the model's size, centre crop, normalised: `[3 H W]`."""
    height, width = spec["height"], spec["width"]
    scale = max(height / frame.height, width / frame.width)
    tall, wide = max(height, round(frame.height * scale)), max(width, round(frame.width * scale))
    pixels = frame.reformat(wide, tall, format="rgb24", interpolation="BILINEAR").to_ndarray()
    top, left = (tall - height) // 2, (wide - width) // 2
    pixels = pixels[top : top + height, left : left + width].astype(np.float32) / 255
    if spec["channels"] == "BGR":
        pixels = pixels[..., ::-1]
    pixels = (pixels - np.float32(spec["mean"])) / np.float32(spec["std"])
    return np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)


if __name__ == "__main__":
    main()
