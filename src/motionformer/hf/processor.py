"""Videos become the clips of a model, for transformers: decoded, sampled and cropped as `Predictor` does it."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypedDict

import torch
from torch import Tensor
from transformers.image_processing_utils import BatchFeature
from transformers.video_processing_utils import VideoProcessorMixin

from motionformer.data import ClipReader
from motionformer.inference.opening import is_one_video, open_input
from motionformer.inference.scorer import with_views
from motionformer.models import InputSpec
from motionformer.models.hub import describe_processor


class OfThisPackage:
    """Classes that transformers would otherwise copy into every folder it saves, as remote code of their own."""

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = None) -> None:
        """Nothing to do: folders name the import of this module."""


class _VideoOptions(TypedDict, total=False):
    views: int | None
    crops: int | None


class MotionformerVideoProcessor(OfThisPackage, VideoProcessorMixin):  # type: ignore[misc]
    """Videos become the clips of a model: decoded, sampled, resized, cropped and normalised as `Predictor` does it.

    Args:
        input: values of the model's `InputSpec` (`model.config.input`) [default: those of `InputSpec`].
        views: clips along time [default: the model's own]. 1 for training.
        crops: of each clip, 1 or 3 [default: the model's own]. 1 for training.

    Raises:
        ValueError: values that an `InputSpec` does not have.

    Example:
        ```python
        processor = MotionformerVideoProcessor.from_pretrained("folder", views=1, crops=1)
        processor(["a.mp4", "b.mp4"])["pixel_values"]  # [2 t 3 H W]
        ```
    """

    model_input_names = ["pixel_values", "sampling"]  # noqa: RUF012 (transformers' own form)
    valid_kwargs = _VideoOptions

    def __init__(
        self,
        input: Mapping[str, Any] | None = None,
        views: int | None = None,
        crops: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{key: value for key, value in kwargs.items() if key != "video_processor_type"})
        self.input = asdict(_as_spec(input or {}))
        self.views, self.crops = views, crops
        with_views(_as_spec(self.input), views, crops)  # wrong numbers are an error now

    @classmethod
    def of(cls, model: Any, **options: Any) -> "MotionformerVideoProcessor":
        """That of a `Motionformer` or a `MotionformerForVideoClassification`; `options` are `views` and `crops`."""
        described = describe_processor(getattr(model, "model", model).config)
        return cls(described["input"], auto_map=described["auto_map"], **options)

    def __call__(
        self,
        videos: Any,
        *,
        fps: float | None = None,
        views: int | None = None,
        crops: int | None = None,
        num_frames: int | None = None,
        do_sample_frames: bool = True,
        return_tensors: str = "pt",
    ) -> BatchFeature:
        """Read one video or several.

        Args:
            videos: whatever `Predictor` takes: paths, addresses, bytes, rows, decoders, frames; or a list of these.
            fps: of frames in memory [default: the model's rate].
            views, crops: as above [default: the processor's own].
            num_frames: what a pipeline's model takes; another number than this processor's is an error.
            do_sample_frames: always: clips are sampled as the model was trained.
            return_tensors: "pt".

        Returns:
            `pixel_values`: `[b t 3 H W]`, or `[b v t 3 H W]` where a video has several views; `sampling`: how they were
            read, for the model to compare.

        Raises:
            VideoError: a video that cannot be read.
            ValueError: no video, other frames than the model's, or other tensors than PyTorch's.
        """
        spec = _as_spec(self.input)
        if num_frames not in (None, spec.frames):
            raise ValueError(
                f"the model takes clips of {num_frames} frames, this processor makes {spec.frames}: load both from one "
                "folder, or make it with MotionformerVideoProcessor.of(model)."
            )
        if not do_sample_frames:
            raise ValueError("clips are always sampled as the model was trained: leave `do_sample_frames` out.")
        if return_tensors != "pt":
            raise ValueError(f"`return_tensors` must be 'pt'; not {return_tensors!r}.")
        views, crops = self.views if views is None else views, self.crops if crops is None else crops
        reader = ClipReader(with_views(spec, views, crops))
        clips = []
        for video in [videos] if is_one_video(videos) else videos:
            with open_input(video, spec, fps) as opened:
                found = reader.read(opened.source)
            clips.append(torch.stack(list(reader.clips(found))).transpose(1, 2))
        if not clips:
            raise ValueError("no video was given.")
        pixels = torch.stack(clips)
        pixels = pixels[:, 0] if pixels.shape[1] == 1 else pixels
        return BatchFeature({"pixel_values": pixels, "sampling": _sampling(spec).repeat(len(clips), 1)})

    preprocess = __call__


def _as_spec(values: Mapping[str, Any]) -> InputSpec:
    unknown = sorted(set(values) - {field.name for field in fields(InputSpec)})
    if unknown:
        raise ValueError(f"a model's input has no {', '.join(map(repr, unknown))}.")
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return InputSpec(**plain)


_CHOICES = {
    "sampling": ("stride", "segments"),
    "channels": ("RGB", "BGR"),
    "protocol": ("uniform", "released"),
    "interpolation": ("bilinear", "bicubic"),
}
_COMPARED = (
    "frames",
    "height",
    "width",
    "sampling",
    "stride",
    "fps",
    "channels",
    "mean",
    "std",
    "protocol",
    "interpolation",
)
"""What changes the clip that a model sees; the number of views and crops does not."""


def _sampling(spec: InputSpec) -> Tensor:
    """The input as whole numbers `[k]`: they pass through collating, devices and precisions unchanged."""
    found: list[int] = []
    for name in _COMPARED:
        value = getattr(spec, name)
        if name in _CHOICES:
            found.append(_CHOICES[name].index(value))
        else:
            found += [
                -1 if x is None else round(x * 1_000_000) for x in (value if isinstance(value, tuple) else (value,))
            ]
    return torch.tensor([found])


def check_sampling(given: Tensor, spec: InputSpec) -> None:
    """Raise where clips were read otherwise than the model takes them."""
    wanted = _sampling(spec).to(given.device)
    if given.shape[1:] == wanted.shape[1:] and bool((given == wanted).all()):
        return
    names = [name for name in _COMPARED for _ in range(3 if name in ("mean", "std") else 1)]
    row = next((row for row in given if not torch.equal(row, wanted[0])), given[0])
    pairs = zip(names, row.tolist(), wanted[0].tolist(), strict=False)
    differ = dict.fromkeys(f"{n} ({_shown(n, a)}, not {_shown(n, b)})" for n, a, b in pairs if a != b)
    raise ValueError(
        f"the processor reads other clips than the model takes: {', '.join(differ)}. Load both from one folder, or "
        "make the processor with MotionformerVideoProcessor.of(model)."
    )


def _shown(name: str, value: int) -> str:
    if name in _CHOICES:
        return _CHOICES[name][value]
    return "the video's own" if value == -1 else f"{value / 1_000_000:g}"
