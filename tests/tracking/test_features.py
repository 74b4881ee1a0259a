"""Tokens of frames: an image transformer frame by frame, a video model clip by clip, and a layer's own attention."""

import pytest
import torch

from motionformer import create_model, record_attention
from motionformer.models import Motionformer
from motionformer.tracking.features import AttentionReadout, ClipFeatures, TokenReadout
from motionformer.tracking.propagation import Affinity, propagate
from motionformer.video.transforms.base import FromFrames, Normalise
from tests.tracking.discs import disc_clip


def tiny(name: str = "motionformer-tiny", **options: object) -> Motionformer:
    return create_model(name, num_classes=0, **options).eval()  # type: ignore[arg-type]


def test_tokens_are_the_models_features() -> None:
    model, frames = tiny(), disc_clip(frames=6, size=48)[0]
    tokens = list(ClipFeatures(model, height=48)(frames))
    assert len(tokens) == 6
    clip = Normalise()(FromFrames()(frames))
    for start, stop in ((0, 4), (4, 6)):  # made for 8 frames, four token frames: four frames a clip, then the rest
        doubled = clip[:, start:stop].repeat_interleave(2, dim=1)[None]
        with torch.no_grad():
            expected = torch.nn.functional.normalize(model.forward_features(doubled)[0, 1:], dim=-1)
        found = torch.stack([frame.key[0] for frame in tokens[start:stop]]).reshape(-1, 96)
        torch.testing.assert_close(found, expected)


def test_clips_of_one_frame_know_nothing_of_the_others() -> None:
    frames = disc_clip(frames=4, size=48)[0]
    features = ClipFeatures(tiny("joint-tiny"), clip=1, height=48)
    alone = next(features(frames[2:3]))
    among = list(features(frames))[2]
    torch.testing.assert_close(alone.key, among.key)
    together = list(ClipFeatures(features.model, clip=4, height=48)(frames))[2]
    assert not torch.allclose(together.key, alone.key)


@pytest.mark.parametrize("name", ["motionformer-tiny", "joint-tiny", "divided-tiny"])
def test_any_model_and_block(name: str) -> None:
    frames = torch.randint(0, 255, (3, 40, 66, 3), dtype=torch.uint8)
    for readout in (TokenReadout(1), AttentionReadout(1), AttentionReadout(-1)):
        first, *_ = ClipFeatures(tiny(name), readout, height=50)(frames)
        assert first.query.shape[1:3] == (6, 10)  # 50 px are 6 patches of 8; 50 · 66 / 40 px are 10


def test_attention_readout_is_the_attention_of_the_layer() -> None:
    """With one frame of context and no limits, labels move as the layer's recorded map says."""
    model, frames = tiny("motionformer-tiny"), disc_clip(frames=2, size=48)[0]
    a, b = ClipFeatures(model, AttentionReadout(2), clip=2, height=48)(frames)
    with torch.no_grad(), record_attention(model) as records:
        clip = Normalise()(FromFrames()(frames)).repeat_interleave(2, dim=1)
        model(clip[None])
    maps = records["blocks.2.attn"].space[0, :, 36:, 0]  # h, queries of the second frame, keys of the first
    labels = torch.rand(1, 2, 6, 6)
    expected = (maps @ labels[0].flatten(1).T).mean(dim=0).T.view(2, 6, 6)
    found = propagate(b.query, a.key[None], labels, Affinity(None, None, AttentionReadout.default.temperature))
    torch.testing.assert_close(found, expected)


def test_bgr_models_get_bgr() -> None:
    from dataclasses import replace

    model = tiny("joint-tiny")
    frames = torch.randint(0, 255, (1, 48, 48, 3), dtype=torch.uint8)
    before = next(ClipFeatures(model, height=48)(frames.flip(3))).key
    model.config = replace(model.config, input=replace(model.config.input, channels="BGR"))
    torch.testing.assert_close(next(ClipFeatures(model, height=48)(frames)).key, before)


def test_pixels_are_those_of_the_pipeline_where_channels_differ_in_mean_and_std() -> None:
    """ImageNet statistics and BGR: swapping after normalising would give each channel another's."""
    from dataclasses import replace

    from motionformer.video.transforms import eval_transform

    model = tiny("joint-tiny")
    spec = replace(model.config.input, channels="BGR", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    model.config = replace(model.config, input=spec)
    seen: list[torch.Tensor] = []
    model.tokens.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0]))
    frames = torch.randint(0, 255, (2, 48, 48, 3), dtype=torch.uint8)
    list(ClipFeatures(model, clip=2, height=48)(frames))
    expected = eval_transform(spec)(frames).repeat_interleave(model.config.tubelet, dim=1)
    torch.testing.assert_close(seen[0][0], expected, atol=1e-6, rtol=0)


def test_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="blocks 0 to 3"):
        ClipFeatures(tiny(), TokenReadout(4))
    with pytest.raises(ValueError, match="a frame or more"):
        ClipFeatures(tiny(), clip=0)
