"""RandAugment (Cubuk et al. 2020) for clips: some changes of picture or colour, the same for all frames.

What a `standard` operation looks at (mean, histogram) is the whole clip, so that brightness never flickers from frame
to frame. The `released` ones (named as in the release) look at each frame by itself, as released models were trained.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Num, UInt8
from torch import Generator, Tensor

from motionformer.video.transforms.base import Transform, by_frame
from motionformer.video.transforms.colour import ColourMap, mean_colour

_Bytes = UInt8[Tensor, "3 t H W"]
_Frame = UInt8[Tensor, "3 H W"]
STRONGEST = 30.0
_AffineMap = tuple[float, float, float, float, float, float]
"""`x' = a x + b y + c`, `y' = d x + e y + f`, in pixels from the top left corner."""
_Matrix = tuple[tuple[float, float], tuple[float, float]]
"""Rows for x and for y."""
_UNCHANGED: _Matrix = ((1.0, 0.0), (0.0, 1.0))
_FILL = 0.5
_PIXELS_AT_ONCE = 1 << 15


@dataclass(eq=False)
class RandAugment(Transform):
    """With some probability, `num_ops` changes one after the other, drawn with replacement.

    Args:
        magnitude: strength of the changes, 0 to 30.
        spread: standard deviation of the magnitude, a new one for each change.
        probability: of changing the clip at all.
        operations: `standard` (14), `released` (15), or names of either.
        same_sign: all changes of a clip go to the same side; else each to its own.
        channels: the order in which the operations see the channels. It matters for what takes the first one for red.

    Example:
        >>> clip = torch.zeros(3, 16, 32, 40)
        >>> RandAugment.released()(clip, torch.Generator().manual_seed(0)).shape
        torch.Size([3, 16, 32, 40])
    """

    num_ops: int = 2
    magnitude: float = 20.0
    spread: float = 0.0
    _: KW_ONLY
    probability: float = 1.0
    operations: str | Sequence[str] = "standard"
    same_sign: bool = False
    channels: Literal["RGB", "BGR"] = "RGB"

    def __post_init__(self) -> None:
        of_range = 0 <= self.magnitude <= STRONGEST and 0 <= self.probability <= 1
        if self.num_ops < 0 or self.spread < 0 or not of_range:
            raise ValueError(
                f"num_ops is 0 or more, magnitude 0 to {STRONGEST:.0f}, spread not negative, probability 0 to 1."
            )
        self._names = operation_names(self.operations)
        self._interpolates = any(name in RELEASED for name in self._names)

    @classmethod
    def released(cls, channels: Literal["RGB", "BGR"] = "BGR") -> "RandAugment":
        """As the released models were trained: two of 15 operations at full strength on half of the clips.

        The release asks for magnitudes 15 and 20 and clips both to 10, the strongest (30 here); its coins for the two
        operations are the same coin, and so are their signs. It gives frame 0 other operations than the rest of the
        clip, a defect that is not repeated. Its loaders of Something-Something and EPIC-Kitchens read BGR.
        """
        return cls(2, STRONGEST, probability=0.5, operations="released", same_sign=True, channels=channels)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        if self.probability < 1 and self._uniform(generator) >= self.probability:
            return clip
        swapped = self.channels == "BGR"
        pixels = _to_bytes(clip.flip(0) if swapped else clip)
        sign = self._draw_sign(generator) if self.same_sign else None
        cubic = self._interpolates and self._uniform(generator) < 0.5
        for _ in range(self.num_ops):
            name = self._names[self._whole(generator, len(self._names) - 1)]
            pixels = _change(pixels, name, self.draw_strength(generator, sign), cubic=cubic)
        pixels = pixels.flip(0) if swapped else pixels
        return pixels if clip.dtype == torch.uint8 else pixels.to(clip.dtype) / 255.0

    def draw_strength(self, generator: Generator | None, sign: float | None = None) -> float:
        """From −1 to 1; the sign (drawn, if none is given) is the side to which the picture is changed."""
        sign = self._draw_sign(generator) if sign is None else sign
        magnitude = self.magnitude
        if self.spread > 0:
            magnitude += self.spread * torch.randn((), generator=generator).item()
        return sign * min(max(magnitude / STRONGEST, 0.0), 1.0)

    def _draw_sign(self, generator: Generator | None) -> float:
        return 1.0 if self._uniform(generator) < 0.5 else -1.0


def operation_names(operations: str | Sequence[str]) -> tuple[str, ...]:
    """The operations of a named set, or the names themselves.

    Raises:
        ValueError: a name that is no operation.
    """
    sets = {"standard": tuple(OPERATIONS), "released": tuple(RELEASED)}
    names = (operations,) if isinstance(operations, str) else tuple(operations)
    if len(names) == 1 and names[0] in sets:
        return sets[names[0]]
    unknown = [name for name in names if name not in OPERATIONS and name not in RELEASED]
    if unknown or not names:
        there_are = "; ".join(f"`{name}`: {', '.join(members)}" for name, members in sets.items())
        raise ValueError(
            f"RandAugment has no operation {', '.join(map(repr, unknown))}. There are the sets {there_are}."
            if unknown
            else "RandAugment needs at least one operation."
        )
    return names


def _change(clip: _Bytes, name: str, strength: float, *, cubic: bool = False) -> _Bytes:
    """One operation at a strength from −1 to 1. `cubic` is how released ones that move pixels interpolate."""
    if name in OPERATIONS:
        return OPERATIONS[name](clip, strength)
    return RELEASED[name].change(clip, RELEASED[name].argument(strength), cubic)


def _equalise(clip: _Bytes, strength: float = 0.0) -> _Bytes:
    """Every brightness about as often as any other, per channel."""
    return _look_up(clip, torch.stack([_equal_shares(channel) for channel in clip]))


def _equal_shares(channel: UInt8[Tensor, "t H W"]) -> Int[Tensor, "256"]:
    counts = torch.bincount(channel.flatten(), minlength=256)
    occurs = counts.nonzero()
    if occurs.numel() < 2:
        return torch.arange(256, device=channel.device)
    below = counts.cumsum(0) - counts
    darker = below[occurs[-1, 0]]  # all pixels but the brightest: the full range is shared out among them
    return (below * 255 + darker // 2) // darker


def _stretch(clip: _Bytes, strength: float = 0.0) -> _Bytes:
    """Each channel from its darkest and brightest to the full range (autocontrast)."""
    low, high = (bound.float()[:, None] for bound in torch.aminmax(clip.reshape(3, -1), dim=1))
    values = torch.arange(256.0, device=clip.device).expand(3, 256)
    stretched = (values - low) * 255.0 / (high - low).clamp(min=1.0)
    return _look_up(clip, torch.where(high > low, stretched, values).round())


def _solarise(clip: _Bytes, strength: float) -> _Bytes:
    """Bright pixels, above a threshold, become their negative."""
    values = torch.arange(256, device=clip.device)
    return _look_up(clip, torch.where(values > 255 * (1.0 - abs(strength)), 255 - values, values))


def _posterise(clip: _Bytes, strength: float) -> _Bytes:
    """Fewer bits per channel, four at least."""
    dropped = round(4 * abs(strength))
    return _look_up(clip, torch.arange(256, device=clip.device) & (256 - 2**dropped))


def _look_up(clip: UInt8[Tensor, "3 *rest"], table: Num[Tensor, "*channels 256"]) -> UInt8[Tensor, "3 *rest"]:
    """The byte that stands in the table (one for all channels, or one each) for every byte of the clip."""
    tables = table.clamp(0, 255).to(torch.uint8).expand(3, 256)
    planes = [one.index_select(0, plane.flatten().int()) for one, plane in zip(tables, clip, strict=True)]
    return torch.stack(planes).view(clip.shape)


OPERATIONS: Mapping[str, Callable[[_Bytes, float], _Bytes]] = {
    "identity": lambda clip, strength: clip,
    "stretch": _stretch,
    "equalise": _equalise,
    "solarise": _solarise,
    "posterise": _posterise,
    "brightness": lambda clip, strength: ColourMap.brightness(1.0 + 0.9 * strength).apply(clip),
    "contrast": lambda clip, strength: ColourMap.contrast(1.0 + 0.9 * strength, mean_colour(clip)).apply(clip),
    "saturation": lambda clip, strength: ColourMap.saturation(1.0 + 0.9 * strength).apply(clip),
    "sharpness": lambda clip, strength: _sharpen(clip, 1.0 + 0.9 * strength),
    "rotate": lambda clip, strength: _warp(clip, _rotation(30.0 * strength)),
    "shear across": lambda clip, strength: _warp(clip, ((1.0, 0.3 * strength), (0.0, 1.0))),
    "shear down": lambda clip, strength: _warp(clip, ((1.0, 0.0), (0.3 * strength, 1.0))),
    "shift across": lambda clip, strength: _warp(clip, shift=(0.45 * strength, 0.0)),
    "shift down": lambda clip, strength: _warp(clip, shift=(0.0, 0.45 * strength)),
}


_ReleasedChange = Callable[[_Bytes, float, bool], _Bytes]


class _Operation(NamedTuple):
    """One of the release: what its argument is at a strength from −1 to 1, and what it does to a clip."""

    argument: Callable[[float], float]
    change: _ReleasedChange


def _table(values: Callable[[Int[Tensor, "256"], float], Num[Tensor, "256"]]) -> _ReleasedChange:
    """An operation given by what becomes of each byte."""
    return lambda clip, argument, cubic: _look_up(clip, values(torch.arange(256), argument))


def _blend(other: Callable[[_Frame], Num[Tensor, "..."]]) -> _ReleasedChange:
    """An operation that goes from another picture (factor 0) to the frame (1) and beyond, rounded towards black."""

    def blend(frame: _Frame, factor: float) -> _Frame:
        start = other(frame).float()
        return (start + factor * (frame.float() - start)).clamp_(0.0, 255.0).to(torch.uint8)

    return lambda clip, factor, cubic: torch.stack([blend(frame, factor) for frame in clip.unbind(1)], dim=1)


def _move(sources: Callable[[float, int, int], _AffineMap]) -> _ReleasedChange:
    """An operation that takes pixels from other sources, which depend on height and width."""
    return lambda clip, argument, cubic: _sample_affine(clip, sources(argument, *clip.shape[2:]), cubic=cubic)


def _each_frame(change_frame: Callable[[_Frame], _Frame]) -> _ReleasedChange:
    return lambda clip, argument, cubic: torch.stack([change_frame(frame) for frame in clip.unbind(1)], dim=1)


def _auto_contrast(frame: _Frame) -> _Frame:
    low, high = (bound.double()[:, None] for bound in torch.aminmax(frame.flatten(1), dim=1))
    values = torch.arange(256.0, dtype=torch.float64).expand(3, 256)
    scale = 255.0 / (high - low).clamp(min=1.0)
    return _look_up(frame, torch.where(high > low, values * scale - low * scale, values))


def _equalize(frame: _Frame) -> _Frame:
    return _look_up(frame, torch.stack([_equal_steps(channel) for channel in frame]))


def _equal_steps(channel: UInt8[Tensor, "H W"]) -> Int[Tensor, "256"]:
    """In whole steps of a 255th of the pixels; fewer pixels than that are left as they are."""
    counts = torch.bincount(channel.flatten(), minlength=256)
    brightest = counts[counts.nonzero()[-1, 0]]
    step = int((channel.numel() - brightest) // 255)
    if step == 0:
        return torch.arange(256)
    return (counts.cumsum(0) - counts + step // 2) // step


def _grey(frame: _Frame) -> Int[Tensor, "H W"]:
    red, green, blue = frame.int().unbind(0)
    return (19595 * red + 38470 * green + 7471 * blue + 32768).bitwise_right_shift(16)


def _mean_grey(frame: _Frame) -> Float[Tensor, ""]:
    return (_grey(frame).double().mean() + 0.5).floor()


def _smooth(frame: _Frame) -> _Frame:
    """A 3 × 3 mean that counts the middle five times; the outermost pixels stay."""
    smooth = frame.clone()
    if min(frame.shape[1:]) > 2:
        rows = frame[:, :-2].int() + frame[:, 1:-1] + frame[:, 2:]
        total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * frame[:, 1:-1, 1:-1].int()
        smooth[:, 1:-1, 1:-1] = (total / 13.0 + 0.5).to(torch.uint8)
    return smooth


def _turned(degrees: float, height: int, width: int) -> _AffineMap:
    (a, b), (c, d) = _rotation(degrees)
    x, y = width / 2, height / 2
    return a, b, x - a * x - b * y, c, d, y - c * x - d * y


def _factor(strength: float) -> float:
    return 1.0 + 0.9 * strength


RELEASED: Mapping[str, _Operation] = {
    "AutoContrast": _Operation(lambda s: 0.0, _each_frame(_auto_contrast)),
    "Equalize": _Operation(lambda s: 0.0, _each_frame(_equalize)),
    "Invert": _Operation(lambda s: 0.0, _table(lambda v, _: 255 - v)),
    "Rotate": _Operation(lambda s: 30.0 * s, _move(_turned)),
    # bits kept: none at full strength, a black frame
    "PosterizeIncreasing": _Operation(
        lambda s: 4 - int(4 * abs(s)), _table(lambda v, bits: v & (256 - 2 ** (8 - int(bits))))
    ),
    "SolarizeIncreasing": _Operation(
        lambda s: 256 - int(256 * abs(s)), _table(lambda v, threshold: torch.where(v < threshold, v, 255 - v))
    ),
    "SolarizeAdd": _Operation(lambda s: int(110 * abs(s)), _table(lambda v, more: torch.where(v < 128, v + more, v))),
    "ColorIncreasing": _Operation(_factor, _blend(_grey)),
    "ContrastIncreasing": _Operation(_factor, _blend(_mean_grey)),
    "BrightnessIncreasing": _Operation(_factor, _blend(torch.zeros_like)),
    "SharpnessIncreasing": _Operation(_factor, _blend(_smooth)),
    "ShearX": _Operation(lambda s: 0.3 * s, _move(lambda by, h, w: (1.0, by, 0.0, 0.0, 1.0, 0.0))),
    "ShearY": _Operation(lambda s: 0.3 * s, _move(lambda by, h, w: (1.0, 0.0, 0.0, by, 1.0, 0.0))),
    "TranslateXRel": _Operation(lambda s: 0.45 * s, _move(lambda by, h, w: (1.0, 0.0, by * w, 0.0, 1.0, 0.0))),
    "TranslateYRel": _Operation(lambda s: 0.45 * s, _move(lambda by, h, w: (1.0, 0.0, 0.0, 0.0, 1.0, by * h))),
}


def _warp(
    clip: Num[Tensor, "3 t H W"], matrix: _Matrix = _UNCHANGED, shift: tuple[float, float] = (0.0, 0.0)
) -> Num[Tensor, "3 t H W"]:
    """Each pixel is taken from `matrix · (x, y) + shift`, from the centre; grey where that is outside.

    `matrix` is in pixels, `shift` in shares of width and height.
    """
    height, width = clip.shape[2:]
    (a, b), (c, d) = matrix
    theta = torch.tensor([[[a, b * height / width, 2 * shift[0]], [c * width / height, d, 2 * shift[1]]]])
    sources = F.affine_grid(theta.to(clip.device), [1, 1, height, width], align_corners=False)

    def _change(frame: Tensor) -> Tensor:
        moved = F.grid_sample((frame - _FILL)[None], sources.to(frame.dtype), align_corners=False)[0]
        return moved.add_(_FILL)

    return by_frame(clip, _change)


def _rotation(degrees: float) -> _Matrix:
    """A turn, counter-clockwise as seen."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return (cos, -sin), (sin, cos)


def _sharpen(clip: Num[Tensor, "3 t H W"], factor: float) -> Num[Tensor, "3 t H W"]:
    """Away from (above 1) or towards (below 1) a smoothed copy: a 3 × 3 mean that counts the middle five times."""

    def _change(frame: Tensor) -> Tensor:
        padded = F.pad(frame[None], (1, 1, 1, 1), mode="replicate")[0]
        rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
        smooth = (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]).add_(frame, alpha=4.0).div_(13.0)
        return smooth.lerp_(frame, factor).clamp_(0.0, 1.0)

    return by_frame(clip, _change)


def _sample_affine(clip: UInt8[Tensor, "3 t H W"], sources: _AffineMap, *, cubic: bool) -> UInt8[Tensor, "3 t H W"]:
    """Each pixel taken from where `sources` maps its centre, rounded down; mid-grey where that is outside the frame.

    Bilinear or cubic (coefficient −1), the frame's edge repeated: as the release warps its frames.
    """
    _, frames, height, width = clip.shape
    a, b, c, d, e, f = sources
    x = torch.arange(width, dtype=torch.float64)[None] + 0.5
    y = torch.arange(height, dtype=torch.float64)[:, None] + 0.5
    x, y = (a * x + b * y + c).flatten(), (d * x + e * y + f).flatten()
    inside = ((x >= 0) & (x < width) & (y >= 0) & (y < height)).nonzero().flatten()
    x, y = x - 0.5, y - 0.5
    pixels = clip.permute(2, 3, 0, 1).reshape(height * width, 3 * frames)  # one look-up for all channels and frames
    moved = torch.full_like(pixels, 128)
    for some in inside.split(_PIXELS_AT_ONCE):
        moved[some] = _interpolate(pixels, x[some], y[some], (height, width), cubic).clamp_(0.0, 255.0).to(torch.uint8)
    return moved.view(height, width, 3, frames).permute(2, 3, 0, 1)


def _interpolate(
    pixels: UInt8[Tensor, "hw c"], x: Float[Tensor, " n"], y: Float[Tensor, " n"], size: tuple[int, int], cubic: bool
) -> Float[Tensor, "n c"]:
    """By differences from the pixel up left, so that an even area stays even."""
    height, width = size
    left, top = x.floor(), y.floor()
    columns = [((left + k).clamp(0, width - 1), _weight(x - left - k, cubic)) for k in _near(cubic)]
    rows = [((top + k).clamp(0, height - 1), _weight(y - top - k, cubic)) for k in _near(cubic)]

    def take(row: Tensor, column: Tensor) -> Tensor:
        return pixels.index_select(0, (row * width + column).long()).double()

    base = take(top.clamp(0, height - 1), left.clamp(0, width - 1))
    total = base.clone()
    for row, down in rows:
        for column, across in columns:
            weight = down * across
            if weight.any():
                total.addcmul_(weight[:, None], take(row, column).sub_(base))
    return total


def _near(cubic: bool) -> range:
    return range(-1, 3) if cubic else range(2)


def _weight(distance: Float[Tensor, " n"], cubic: bool) -> Float[Tensor, " n"]:
    away = distance.abs()
    if not cubic:
        return 1.0 - away
    return torch.where(away <= 1, 1 - 2 * away**2 + away**3, 4 - 8 * away + 5 * away**2 - away**3)


def _to_bytes(clip: Num[Tensor, "3 t H W"]) -> UInt8[Tensor, "3 t H W"]:
    """The clip as bytes, one plane per channel in memory; floats are rounded."""
    return clip.contiguous() if clip.dtype == torch.uint8 else (clip.contiguous() * 255.0).round_().to(torch.uint8)
