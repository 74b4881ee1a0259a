"""Propagation against a loop over every query and key; the tokens of frames, from image and video models."""

import math
from itertools import count

import pytest
import torch
from torch import Tensor

from motionformer import create_model, record_attention
from motionformer.models import Motionformer
from motionformer.tracking import propagation as module
from motionformer.tracking.propagation import (
    Affinity,
    AttentionReadout,
    ClipFeatures,
    TokenReadout,
    _decide,
    _FrameTokens,
    _one_hot,
    _propagate,
    _to_grid,
    propagate_mask,
)
from motionformer.video.transforms.base import FromFrames, Normalise
from tests.tracking.discs import disc_clip


@pytest.mark.parametrize("radius", [None, 0, 1, 3])
@pytest.mark.parametrize("top_k", [None, 1, 4])
def test_equals_a_loop(radius: int | None, top_k: int | None) -> None:
    query, keys = torch.randn(2, 5, 6, 3), torch.randn(3, 2, 5, 6, 3)
    labels = torch.rand(3, 4, 5, 6)
    how = Affinity(radius, top_k, 0.7)
    torch.testing.assert_close(_propagate(query, keys, labels, how), loop(query, keys, labels, how))


def test_chunks_change_nothing_and_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, labels = torch.randn(1, 24, 30, 4), torch.randn(4, 1, 24, 30, 4), torch.rand(4, 2, 24, 30)
    whole = _propagate(query, keys, labels, Affinity(radius=5))
    sizes: list[int] = []
    topk = Tensor.topk
    monkeypatch.setattr(Tensor, "topk", lambda self, *a, **k: (sizes.append(self.numel()), topk(self, *a, **k))[1])
    budget = 200_000
    monkeypatch.setattr(module, "BUDGET", budget)
    torch.testing.assert_close(_propagate(query, keys, labels, Affinity(radius=5)), whole)
    assert len(sizes) > 4
    assert max(sizes) <= budget


def test_labels_go_where_the_token_went() -> None:
    """Every token is itself, moved by two columns: labels move with them."""
    tokens = torch.nn.functional.normalize(torch.randn(1, 8, 10, 64), dim=-1)
    moved = tokens.roll(2, dims=2)
    label = torch.rand(1, 3, 8, 10).softmax(dim=1)
    out = _propagate(moved, tokens[None], label, Affinity(radius=None, top_k=1))
    torch.testing.assert_close(out, label[0].roll(2, dims=2))
    stuck = _propagate(moved, tokens[None], label, Affinity(radius=1, top_k=1))
    assert not torch.allclose(stuck, label[0].roll(2, dims=2))


def test_labels_that_sum_to_one_still_do() -> None:
    label = torch.rand(2, 3, 6, 6).softmax(dim=1)
    out = _propagate(torch.randn(3, 6, 6, 8), torch.randn(2, 3, 6, 6, 8), label, Affinity())
    torch.testing.assert_close(out.sum(dim=0), torch.ones(6, 6))


@pytest.mark.parametrize("wrong", [{"radius": -1}, {"top_k": 0}, {"temperature": 0.0}])
def test_refuses_nonsense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="`radius` must be 0 or more"):
        Affinity(**wrong)


def test_a_weak_label_wins_where_it_is_strongest() -> None:
    """Layers are compared after each is stretched to 0 … 1; one that is the same everywhere wins nowhere."""
    label = torch.full((3, 4, 4), 0.2)
    label[0] = 0.7
    label[0, :, 3] = 0.6  # the background gives way a little in the last column, where object 5 is never ahead of it
    label[1, :, 3] = 0.3
    found = _decide(label, [5, 9], (4, 4))
    assert found[:, 3].tolist() == [5] * 4
    assert (found[:, :3] == 0).all()


def test_a_layer_without_differences_is_not_stretched() -> None:
    """Rounding would become a mask; an object that fills the frame would become the background."""
    gone = torch.stack((torch.ones(4, 4), torch.zeros(4, 4)))
    gone[1, 0, 0] = 1e-6
    assert (_decide(gone, [5], (8, 8)) == 0).all()
    assert (_decide(gone.flip(0), [5], (8, 8)) == 5).all()


def test_without_the_stretch_what_has_left_stays_away() -> None:
    left = torch.stack((torch.full((4, 4), 0.9), torch.full((4, 4), 0.1)))
    left[:, 0, 0] = torch.tensor([0.8, 0.2])
    assert (_decide(left, [5], (4, 4)) == 5).any()
    assert (_decide(left, [5], (4, 4), stretch=False) == 0).all()


def test_streams_with_a_bounded_context() -> None:
    """An endless video: one frame is read for one mask, and no more tokens are alive than the context holds."""
    import gc
    import weakref

    alive: list[weakref.ref[Tensor]] = []

    def endless() -> object:
        for _ in count():
            key = torch.randn(1, 4, 4, 8)
            alive.append(weakref.ref(key))
            yield _FrameTokens(key, key)
            del key

    first = torch.zeros(16, 16, dtype=torch.uint8)
    first[4:12, 4:12] = 1
    masks = propagate_mask(endless(), first, Affinity(), context=3)  # type: ignore[arg-type]
    for _ in range(20):
        next(masks)
    gc.collect()
    assert len(alive) == 20
    assert sum(ref() is not None for ref in alive) <= 1 + 3 + 1


def test_the_first_frame_is_remembered() -> None:
    """Tokens like the first frame's take its labels, even if the frames between had lost the object."""
    tokens = torch.nn.functional.normalize(torch.randn(1, 4, 4, 32), dim=-1)
    noise = [torch.nn.functional.normalize(torch.randn(1, 4, 4, 32), dim=-1) for _ in range(6)]
    first = torch.zeros(16, 16, dtype=torch.uint8)
    first[4:12, 4:12] = 1
    frames = [_FrameTokens(key, key) for key in (tokens, *noise, tokens)]
    *_, lost, last = propagate_mask(frames, first, Affinity(top_k=1), context=2)
    expected = _decide(_to_grid(_one_hot(first, [1]), (4, 4)), [1], (16, 16))
    assert torch.equal(last, expected)
    assert not torch.equal(lost, expected)


def loop(query: Tensor, keys: Tensor, labels: Tensor, how: Affinity) -> Tensor:
    heads, height, width, _ = query.shape
    out = torch.zeros(labels.shape[1], height, width)
    for h in range(heads):
        for y in range(height):
            for x in range(width):
                found = []
                for f in range(len(keys)):
                    for v in range(height):
                        for u in range(width):
                            if how.radius is None or max(abs(y - v), abs(x - u)) <= how.radius:
                                logit = float(query[h, y, x] @ keys[f, h, v, u]) / how.temperature
                                found.append((logit, labels[f, :, v, u]))
                best = sorted(found, key=lambda pair: -pair[0])[: how.top_k]
                total = sum(math.exp(logit) for logit, _ in best)
                out[:, y, x] += sum(math.exp(logit) / total * label for logit, label in best) / heads
    return out


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
            expected = torch.nn.functional.normalize(model.features(doubled)[0][0, 1:], dim=-1)
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
    found = _propagate(b.query, a.key[None], labels, Affinity(None, None, AttentionReadout.default.temperature))
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


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="blocks 0 to 3"):
        ClipFeatures(tiny(), TokenReadout(4))
    with pytest.raises(ValueError, match=r"`clip` \(0\) must be 1 or more"):
        ClipFeatures(tiny(), clip=0)
