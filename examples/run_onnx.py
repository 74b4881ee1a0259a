"""Classify a video with an exported model, without motionformer and without PyTorch.

    pip install numpy onnxruntime av
    python run_onnx.py model.onnx clip.mp4

Everything it has to know about clips (frames, stride, size, mean, deviation, channel order, labels) is in the file.
One clip from the middle of the video, centre crop; `motionformer predict` averages several views. Weights of the
authors are given clips by their rules (`protocol: released`), but cut by counting frames, not by time stamps.
"""

import argparse
import json
from fractions import Fraction
from itertools import pairwise
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
    score = sigmoid if json.loads(stored.get("scoring", "null")) == "sigmoid" else softmax
    clip = read_clip(args.video, about["clip"])
    for name, logits in zip(about["outputs"], session.run(about["outputs"], {"clip": clip[None]}), strict=True):
        print(name)
        scores = score(logits[0])
        for k in np.argsort(-scores)[: args.top]:
            print(f"  {scores[k]:.4f}  {about['labels'][k] if about['labels'] else k}")


def softmax(logits: np.ndarray) -> np.ndarray:
    """One class of all."""
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Each class by itself."""
    return 0.5 * (1 + np.tanh(0.5 * logits))


def read_clip(path: str, spec: dict[str, Any]) -> np.ndarray:
    """The middle clip of a video, `[3 t H W]`, as the model was trained on."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        fps = stream.average_rate or Fraction(spec["fps"]).limit_denominator(100_000)
        aspect = stream.sample_aspect_ratio or Fraction(1)
        total = sum(1 for _ in container.decode(stream))  # headers often announce another number
    if total == 0:
        raise SystemExit(f"{path}: no frame could be decoded.")
    if is_released(spec) or not Fraction(1, 8) <= aspect <= 8:  # stored pixels; a broken header
        aspect = Fraction(1)
    wanted = choose_frames(total, fps, spec)
    with av.open(path) as container:
        picked = {i: frame for i, frame in enumerate(container.decode(video=0)) if i in wanted}
    return np.stack([prepare(picked[i], aspect, spec) for i in wanted], axis=1)


def choose_frames(total: int, fps: Fraction, spec: dict[str, Any]) -> list[int]:
    """Indices of the clip; the last frame repeats where the video is too short."""
    t = spec["frames"]
    if is_released(spec):
        return choose_as_released(total, float(fps), spec)
    if spec["sampling"] == "segments":  # the middle frame of each of t equal parts
        return [(2 * i + 1) * total // (2 * t) for i in range(t)]
    step = spec["stride"] * fps / Fraction(spec["fps"]).limit_denominator(100_000)
    start = max(0, total - 1 - int((t - 1) * step)) // 2
    return [min(total - 1, start + int(i * step)) for i in range(t)]


def is_released(spec: dict[str, Any]) -> bool:
    return bool(spec.get("protocol") == "released")


def choose_as_released(total: int, fps: float, spec: dict[str, Any]) -> list[int]:
    """As the authors' programs choose: middles of segments that share an end, or a spread over stride · t frames."""
    t = spec["frames"]
    if spec["sampling"] == "segments":
        ends = [round((total - 1) / t * i) for i in range(t + 1)]
        return [(low + high) // 2 for low, high in pairwise(ends)]
    length = spec["stride"] * t / spec["fps"] * fps
    start = max(total - length, 0.0) / 2
    return [int(i) for i in np.clip(np.linspace(start, start + length - 1, t), 0, total - 1)]


def prepare(frame: av.VideoFrame, aspect: Fraction, spec: dict[str, Any]) -> np.ndarray:
    """Upright with square pixels, short side to the model's size, centre crop, normalised: `[3 H W]`."""
    pixels = frame.to_ndarray(format="rgb24", interpolation="BILINEAR")
    pixels = resize(pixels, frame.height, max(1, round(frame.width * aspect)))
    pixels = np.rot90(pixels, round(frame.rotation / 90))  # a phone held upright stores frames lying on their side
    height, width = spec["height"], spec["width"]
    tall, wide = cover(pixels.shape[0], pixels.shape[1], height, width)
    top, left = (tall - height + 1) // 2, (wide - width + 1) // 2
    if is_released(spec):
        pixels = resize_plain(pixels, tall, wide)[top : top + height, left : left + width] / 255
    else:
        pixels = resize(pixels, tall, wide)[top : top + height, left : left + width].astype(np.float32) / 255
    if spec["channels"] == "BGR":
        pixels = pixels[..., ::-1]
    pixels = (pixels - np.float32(spec["mean"])) / np.float32(spec["std"])
    return np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)


def cover(tall: int, wide: int, height: int, width: int) -> tuple[int, int]:
    """The smallest size of the same shape that covers height and width."""
    if tall * width <= wide * height:
        return height, max(width, wide * height // tall)
    return max(height, tall * width // wide), width


def resize(pixels: np.ndarray, tall: int, wide: int) -> np.ndarray:
    """Bilinear with antialiasing, along rows, then along columns: what the model was trained on."""
    if pixels.shape[1] != wide:
        pixels = as_bytes(triangles(pixels.shape[1], wide) @ pixels)
    if pixels.shape[0] != tall:
        pixels = as_bytes(np.einsum("hH,HWc->hWc", triangles(pixels.shape[0], tall), pixels, optimize=True))
    return pixels


def resize_plain(pixels: np.ndarray, tall: int, wide: int) -> np.ndarray:
    """Bilinear without antialiasing, in floats."""
    rows, columns = nearest_two(pixels.shape[0], tall), nearest_two(pixels.shape[1], wide)
    return np.einsum("hH,HWc->hWc", rows, columns @ pixels.astype(np.float32), optimize=True)


def nearest_two(have: int, want: int) -> np.ndarray:
    """Each of `want` pixels lies between two of `have`: `[want have]`, rows add up to 1."""
    centres = np.maximum((np.arange(want, dtype=np.float32) + 0.5) * (have / want) - 0.5, 0)
    weights = np.maximum(0, 1 - np.abs(np.arange(have, dtype=np.float32) - np.minimum(centres, have - 1)[:, None]))
    return weights.astype(np.float32)


def as_bytes(pixels: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def triangles(have: int, want: int) -> np.ndarray:
    """How much each of `have` pixels counts for each of `want`: `[want have]`, rows add up to 1."""
    scale = have / want
    centres = (np.arange(want, dtype=np.float32) + 0.5) * scale
    distances = np.abs(np.arange(have, dtype=np.float32) + 0.5 - centres[:, None])
    weights = np.maximum(0, 1 - distances / max(1, scale))
    return weights / weights.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    main()
