"""Small videos whose frames carry their own number as a row of black and white squares, written with PyAV."""

import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video import open_video

BITS = 8
SQUARE = 8

NOTHING_NEW = b"\x00\x00\x01\xb6" + int("0101001011001111", 2).to_bytes(2, "big")
"""A packet of MPEG-4 at 30 frames a second that decodes to nothing. A start code; then type P, no whole second, marker,
five bits of time, marker, "not coded", stuffing."""


def draw_number(number: int, height: int, width: int) -> np.ndarray:
    """A frame with a moving pattern, and its number in binary along the upper edge, highest bit first."""
    rows, columns = np.mgrid[:height, :width]
    frame = np.stack([(rows * 3 + number * 5) % 200, (columns * 2 + number * 3) % 200, (rows + columns) % 200], axis=-1)
    frame[SQUARE:, :, :] = frame[SQUARE:, :, :] // 2 + 50
    for bit in range(BITS):
        frame[:SQUARE, bit * SQUARE : (bit + 1) * SQUARE] = 255 * (number >> (BITS - 1 - bit) & 1)
    return frame.astype(np.uint8)


def read_number(frame: Tensor) -> int:
    """The number drawn on an upright frame."""
    cell = frame.shape[1] / 96 * SQUARE  # all are 96 wide as stored; pixels made square may have stretched them
    bits = [int(frame[SQUARE // 2, int((bit + 0.5) * cell)].float().mean() > 127) for bit in range(BITS)]
    return sum(value << (BITS - 1 - bit) for bit, value in enumerate(bits))


def write_video(
    path: Path,
    *,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    num_frames: int = 40,
    height: int = 64,
    width: int = 96,
    fps: int = 30,
    times: Sequence[int] | None = None,
    tick: Fraction | None = None,
    aspect: Fraction | None = None,
    rotation: float | None = None,
    mirror: bool = False,
    audio: bool = False,
    b_frames: int = 0,
    group: int = 12,
    container: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    **options: str,
) -> Path:
    """Write frames 0 … num_frames − 1; `times` are theirs in ticks, for a rate that varies."""
    with av.open(str(path), "w", options=container or {}) as output:
        output.metadata.update(metadata or {})
        stream = output.add_stream(codec, rate=fps, options=options)
        stream.height, stream.width, stream.pix_fmt = height, width, pixels
        stream.codec_context.gop_size = group
        stream.codec_context.max_b_frames = b_frames
        if tick is not None:
            stream.codec_context.time_base = tick
        if aspect is not None:
            stream.codec_context.sample_aspect_ratio = aspect
        if rotation is not None:
            stream.set_display_rotation(rotation, hflip=mirror)
        if audio:
            add_silence(output, seconds=num_frames / fps)
        for number in range(num_frames):
            frame = av.VideoFrame.from_ndarray(draw_number(number, height, width), format="rgb24")
            frame.pts = number if times is None else times[number]
            frame.time_base = tick or Fraction(1, fps)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return path


def write_lying_video(path: Path, *, num_frames: int = 18, places: Sequence[int] = (7, 12)) -> Path:
    """MPEG-4 that announces more frames than it has: packets at `places`, with times of their own, decode to none."""
    source = write_video(path.with_name(f"source of {path.name}"), codec="mpeg4", num_frames=num_frames)
    with av.open(str(source)) as original, av.open(str(path), "w") as output:
        stream = output.add_stream_from_template(original.streams.video[0])
        packets = [packet for packet in original.demux(video=0) if packet.size]
        for place in places:
            packets.insert(place, av.Packet(NOTHING_NEW))
        for place, packet in enumerate(packets):
            packet.stream, packet.time_base = stream, Fraction(1, 30)
            packet.pts, packet.dts, packet.duration = place, place, 1
            output.mux(packet)
    source.unlink()
    return path


def add_silence(output: av.container.OutputContainer, seconds: float) -> None:
    stream = output.add_stream("aac", rate=16000, layout="mono")
    for start in range(0, int(seconds * 16000), 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, start
        output.mux(stream.encode(frame))
    output.mux(stream.encode())


def write_audio(path: Path) -> Path:
    with av.open(str(path), "w") as output:
        add_silence(output, seconds=1.0)
    return path


def write_images(folder: Path, pattern: str, *, num_frames: int = 12, first: int = 1, step: int = 1) -> Path:
    """A folder of images whose names follow a pattern such as `img_%05d.jpg`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_frames):
        write_image(folder / (pattern % (first + number * step)), draw_number(number, 64, 96))
    return folder


def write_image(path: Path, pixels: np.ndarray, source: str = "rgb24") -> Path:
    """One jpg (nearly lossless) or png."""
    lossless = path.suffix.lower() == ".png"
    codec = av.CodecContext.create("png" if lossless else "mjpeg", "w")
    frame = av.VideoFrame.from_ndarray(pixels, format=source)
    frame = frame if lossless else frame.reformat(format="yuvj420p")
    codec.height, codec.width, codec.pix_fmt = frame.height, frame.width, frame.format.name
    codec.time_base = Fraction(1, 30)
    codec.options = {} if lossless else {"qmin": "1", "qmax": "1"}
    path.write_bytes(b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)]))
    return path


def damage_packet(path: Path, out: Path, number: int, seed: int = 0) -> Path:
    """A copy in which some bits of one packet, by its place in the file, are flipped."""
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data, (start, size), rng = bytearray(path.read_bytes()), packets[number], random.Random(seed)
    for _ in range(8):
        data[start + size // 4 + rng.randrange(3 * size // 4)] ^= 1 << rng.randrange(8)
    out.write_bytes(data)
    return out


def is_broken(path: Path) -> bool:
    """Whether strict decoding of all of it fails."""
    try:
        with open_video(path) as video:
            video.check()
    except VideoError:
        return True
    return False


def write_damaged(path: Path) -> Path:
    """40 frames, of which number 10 is damaged; those after it lean on it."""
    source = write_video(path.with_name("intact.mp4"), group=40, **{"x264-params": "scenecut=0"})
    return next(path for seed in range(100) if is_broken(damage_packet(source, path, 10, seed)))
