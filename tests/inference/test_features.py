"""Features are the model's own tokens; masks hide; files come back as they were."""

from pathlib import Path

import numpy as np
import pytest
import torch

from motionformer.data import ClipReader
from motionformer.errors import EvaluationError
from motionformer.inference import FeatureExtractor, Features, Input
from motionformer.inference.features import _output_files, _write_features, extract_all, read_features
from motionformer.models import Motionformer
from motionformer.video import open_video
from tests.inference.conftest import make_model

CLIPS = torch.randn(3, 3, 4, 16, 24, generator=torch.Generator().manual_seed(0))  # 2 × 2 × 3 tokens


@pytest.mark.parametrize("attention", ["trajectory", "joint", "divided"])
def test_equal_to_the_models_own(attention: str) -> None:
    model = make_model(attention=attention)
    tokens, grid = model.forward_features(CLIPS), model.tokens.grid(CLIPS)
    found = {what: FeatureExtractor(model, what=what).encode(CLIPS) for what in ("class", "pooled", "tokens")}
    assert torch.equal(found["class"], tokens[:, 0])
    assert torch.equal(found["tokens"], tokens[:, 1:].reshape(3, *grid, 24))
    torch.testing.assert_close(found["pooled"], tokens[:, 1:].mean(dim=1))
    after_first = model.blocks[0](model.embed(CLIPS), grid[0])
    assert torch.equal(FeatureExtractor(model, block=0).encode(CLIPS), after_first[:, 0])
    last = model.blocks[1](after_first, grid[0])
    assert torch.equal(FeatureExtractor(model, block=1).encode(CLIPS), last[:, 0])  # no norm: that is "last"


@pytest.mark.parametrize("attention", ["trajectory", "joint", "divided"])
@pytest.mark.parametrize("what", ["class", "pooled", "tokens"])
def test_masked_tokens_change_nothing(attention: str, what: str) -> None:
    extractor = FeatureExtractor(make_model(attention=attention), what=what)
    mask = torch.ones(3, 2, 2, 3, dtype=torch.bool)
    torch.testing.assert_close(extractor.encode(CLIPS, mask), extractor.encode(CLIPS), atol=1e-5, rtol=1e-5)
    mask[:, :, :, 2] = False  # the right third of the picture is not there
    other = CLIPS.clone()
    other[..., 16:] = torch.randn(other[..., 16:].shape)
    hidden = extractor.encode(CLIPS, mask)
    torch.testing.assert_close(hidden, extractor.encode(other, mask))
    assert not torch.allclose(hidden, extractor.encode(CLIPS), atol=1e-3)
    if what == "tokens":
        assert not hidden[:, :, :, 2].any()


def test_segments(model: Motionformer, clip: Path) -> None:
    """40 frames at 30 a second in segments of 0.4 s: 12 frames each, and the rest."""
    found = FeatureExtractor(model, what="tokens", segments=0.4, batch_size=3)(clip)
    np.testing.assert_allclose(found.times * 30, [[0, 12], [12, 24], [24, 36], [28, 40]], atol=1e-9)
    reader = ClipReader(FeatureExtractor(model).spec)
    with open_video(clip) as video:
        for start, values in zip((0, 12, 24, 28), found.values, strict=True):
            frames = video.read([start + i for i in (1, 4, 7, 10)])  # the middles of four equal parts
            view = next(reader.crop(reader.resize(frames)))[None]
            tokens, grid = model.forward_features(view), model.tokens.grid(view)
            np.testing.assert_allclose(values, tokens[0, 1:].reshape(*grid, 24).detach(), atol=1e-5)


def test_one_clip_unless_said(model: Motionformer, clip: Path) -> None:
    found = FeatureExtractor(model)(clip)
    assert found.values.shape == (1, 24)
    np.testing.assert_allclose(found.times * 30, [[15, 25]])
    half = FeatureExtractor(model, segments=0.4, hop=0.2)(clip)
    np.testing.assert_allclose(half.times[:3, 0], [0, 0.2, 0.4])


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_files_come_back(ending: str, dtype: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)
    times = np.arange(10.0).reshape(5, 2)
    parts = [Features(values[:2], times[:2]), Features(values[2:], times[2:])]
    file = tmp_path / "deep" / f"x.{ending}"
    assert _write_features(file, iter(parts), {"what": "tokens"}, dtype) == ((5, 2, 3), None)
    found, about = read_features(file)
    np.testing.assert_array_equal(found.values, values.astype(dtype))
    np.testing.assert_array_equal(found.times, times)
    assert about == {"what": "tokens"}
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_many_and_resumed(model: Motionformer, folder: Path, tmp_path: Path) -> None:
    videos = [Input(folder / name, name) for name in ("a.mp4", "broken.mp4", "sub/a.mp4")]
    extractor = FeatureExtractor(model, segments=0.2)
    first = extract_all(extractor, videos, tmp_path, about={"weights": "w"})
    done = {"video", "file", "shape", "frames", "distinct_frames", "damaged"}
    assert [set(one) for one in first] == [done, {"video", "failed"}, done]
    assert first[0]["shape"] == [3, 24]
    before = (tmp_path / "sub" / "a.mp4.npz").stat().st_mtime_ns
    (tmp_path / "a.mp4.npz").unlink()
    again = extract_all(extractor, videos, tmp_path, about={"weights": "w"}, resume=True)
    assert [one.get("kept", False) for one in again] == [False, False, True]
    assert (tmp_path / "sub" / "a.mp4.npz").stat().st_mtime_ns == before
    np.testing.assert_array_equal(read_features(tmp_path / "a.mp4.npz")[0].values, extractor(videos[0].path).values)
    with pytest.raises(EvaluationError, match="holds other features: weights differ"):
        extract_all(extractor, videos, tmp_path, about={"weights": "other"}, resume=True)
    (tmp_path / "a.mp4.npz").write_text("no features")
    with pytest.raises(EvaluationError, match=r"a\.mp4\.npz: not a file of"):
        extract_all(extractor, videos, tmp_path, about={"weights": "w"}, resume=True)


def test_refuses_nonsense(model: Motionformer, tmp_path: Path) -> None:
    for options, message in (
        ({"block": 2}, "blocks are 0 to 1, or 'last'"),
        ({"hop": 1.0}, "give `segments`, their length"),
        ({"batch_size": 0}, "`batch_size` .0. must be at least 1"),
    ):
        with pytest.raises(EvaluationError, match=message):
            FeatureExtractor(model, **options)
    with pytest.raises(EvaluationError, match="no class token"):
        FeatureExtractor(make_model(num_prefix_tokens=0), what="class")
    assert FeatureExtractor(make_model(num_prefix_tokens=0)).what == "pooled"
    with pytest.raises(EvaluationError, match=r"the mask is \(2, 2, 2\); the clips have \(2, 2, 3\)"):
        FeatureExtractor(model).encode(CLIPS, torch.ones(3, 2, 2, 2, dtype=torch.bool))
    same = [Input(Path("x/a.mp4"), "a.mp4"), Input(Path("y/a.mp4"), "a.mp4")]
    with pytest.raises(EvaluationError, match="would both be written to"):
        _output_files(same, tmp_path, "npz")


@pytest.mark.parametrize("what", ["class", "pooled", "tokens"])
def test_features_that_are_no_numbers_are_refused(what: str) -> None:
    model = make_model()
    model.blocks[0].attn.proj.weight.data[0, 0] = float("nan")
    with pytest.raises(EvaluationError, match="features is not finite"):
        FeatureExtractor(model, what=what).encode(CLIPS)
