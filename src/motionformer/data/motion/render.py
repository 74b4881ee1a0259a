"""A scene of the motion benchmark → pixels. Draws nothing at random; all frames are painted at once."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float32, UInt8

from motionformer.data.motion.scene import Bar, Body, Ground, Scene

Pixels = Float32[np.ndarray, "..."]
Distance = Callable[[Pixels, Pixels], Pixels]
"""From the centre of a body to its offsets (x, y), in pixels."""


def render(scene: Scene, frames: int, size: int) -> UInt8[np.ndarray, "{frames} {size} {size} 3"]:
    """The clip, back to front: ground, distractors, disc, bars."""
    canvas = _ground(scene.ground, frames, size)
    for body in scene.distractors:
        _paint(canvas, body, _square)
    _paint(canvas, scene.disc, _round)
    for bar in scene.bars:
        _paint_bar(canvas, bar, scene.ground)
    pixels: UInt8[np.ndarray, "t size size 3"] = np.rint(canvas * 255).astype(np.uint8)
    return pixels


def disc_path(scene: Scene, frames: int, size: int) -> Float32[np.ndarray, "{frames} 2"]:
    """Where the centre of the disc is, (x, y) in pixels; the first pixel reaches from 0 to 1."""
    path: Pixels = (scene.disc.places(frames) * size).astype(np.float32) % np.float32(size)
    return path


def _ground(ground: Ground, frames: int, size: int) -> Float32[np.ndarray, "{frames} {size} {size} 3"]:
    """cos(x-part + y-part) is split into products, so a frame is one small matrix product and not a cosine a pixel."""
    still = not ground.step.any()
    moments = np.arange(1 if still else frames)[:, None]
    places = (ground.start + moments * ground.step)[..., None]  # t 2 1
    pixels = (np.arange(size) + 0.5) / size
    angle = 2 * np.pi * ground.waves[:, :, None] * (pixels - places[:, None])  # t w 2 size
    across = angle[:, :, 0] + 2 * np.pi * ground.phases[:, None]
    down = angle[:, :, 1]
    rows = np.concatenate([np.cos(down), -np.sin(down)], axis=1).astype(np.float32)
    columns = np.concatenate([np.cos(across), np.sin(across)], axis=1).astype(np.float32)
    weights = np.concatenate([ground.weights, ground.weights]).astype(np.float32)
    columns = (columns[..., None] * weights[:, None]).reshape(len(moments), len(weights), -1)  # t 2w size·3
    texture = (rows.transpose(0, 2, 1) @ columns).reshape(-1, size, size, 3) + ground.mean.astype(np.float32)
    return np.repeat(texture, frames, axis=0) if still else texture


def _paint(canvas: Float32[np.ndarray, "t size size 3"], body: Body, distance: Distance) -> None:
    """Blend the body into the canvas, over the sides of the frame where it lies across them.

    Only a window around the body is touched; its edge is blended over one pixel, so places between pixels show.
    """
    frames, size = canvas.shape[:2]
    places = body.places(frames)[:, :, None] * size
    radius = body.radius * size
    reach = int(np.ceil(radius)) + 1
    pixels = np.floor(places).astype(np.int64) + np.arange(-reach, reach + 1)  # t 2 window
    x, y = (pixels + 0.5 - places).astype(np.float32).transpose(1, 0, 2)
    x, y = x[:, None, :], y[:, :, None]
    cover = np.clip(np.float32(radius + 0.5) - distance(x, y), 0.0, 1.0)[..., None]
    where = np.arange(frames)[:, None, None], pixels[:, 1, :, None] % size, pixels[:, 0, None, :] % size
    behind = canvas[where]
    canvas[where] = behind + cover * (_stripes(body, x / size, y / size) - behind)


def _stripes(body: Body, x: Pixels, y: Pixels) -> Pixels:
    """The body's own texture, which moves with it."""
    colours = body.colours.astype(np.float32)
    along_x, along_y, phase = (2 * np.pi * body.stripes).astype(np.float32)
    mix = 0.5 + 0.5 * np.cos(along_x * x + along_y * y + phase)[..., None]
    texture: Pixels = colours[0] + mix * (colours[1] - colours[0])
    return texture


def _round(x: Pixels, y: Pixels) -> Pixels:
    distance: Pixels = np.hypot(x, y)
    return distance


def _square(x: Pixels, y: Pixels) -> Pixels:
    distance: Pixels = np.maximum(np.abs(x), np.abs(y))
    return distance


def _paint_bar(canvas: Float32[np.ndarray, "t size size 3"], bar: Bar, ground: Ground) -> None:
    frames, size = canvas.shape[:2]
    place = bar.start + np.arange(frames) * ground.step[bar.axis]
    offset = ((np.arange(size) + 0.5) / size - place[:, None] + 0.5) % 1.0 - 0.5
    cover = np.clip((bar.width / 2 - np.abs(offset)) * size + 0.5, 0.0, 1.0).astype(np.float32)
    cover = cover[:, None, :, None] if bar.axis == 0 else cover[:, :, None, None]
    canvas += cover * (bar.colour.astype(np.float32) - canvas)
