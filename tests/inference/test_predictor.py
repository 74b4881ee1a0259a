"""One video, one prediction: equal to a loop nobody can misread, and to what evaluation computes."""

import json
import logging
import multiprocessing
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from motionformer import Predictor
from motionformer.data import Annotations, ClipReader, Failure, Record, Views
from motionformer.errors import EvaluationError, VideoError
from motionformer.inference import FileVideos, Prediction, evaluate
from motionformer.models import Motionformer
from motionformer.video import open_video
from motionformer.video.transforms import eval_transform
from tests.inference.conftest import make_model


def test_equal_to_a_plain_loop(model: Motionformer, clip: Path) -> None:
    """40 frames, clips of 4 frames 3 apart: they start at 0, 15 and 30, each in three crops."""
    spec, scores = model.config.input, []
    with open_video(clip) as video, torch.no_grad():
        for start in (0, 15, 30):
            frames = video.read([start, start + 3, start + 6, start + 9])
            scores += [model(eval_transform(spec, crop)(frames)[None]).softmax(-1)[0] for crop in (0, 1, 2)]
    found = Predictor(model)(clip)
    np.testing.assert_allclose(found.views["class"].reshape(9, 5), torch.stack(scores), atol=1e-6)
    np.testing.assert_allclose(found.scores["class"], torch.stack(scores).mean(0), atol=1e-6)
    order = torch.stack(scores).mean(0).argsort(descending=True).tolist()
    assert [guess.index for guess in found.top(5)] == order
    assert found.label == model.config.labels[order[0]]
    assert found.views["class"].std(axis=(0, 1)).max() > 1e-3, "views that do not differ prove nothing"


def test_equal_to_evaluation(model: Motionformer, clip: Path) -> None:
    source = FileVideos(Annotations((Record(clip),), model.config.labels, "one"), model.config.input)
    expected = evaluate(model, source, show_progress=False)
    np.testing.assert_allclose(Predictor(model)(clip).views["class"], expected.scores["class"][0], atol=1e-6)


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_the_batch_does_not_matter(model: Motionformer, clip: Path, batch: int) -> None:
    expected = Predictor(model, batch_size=8)(clip)
    np.testing.assert_allclose(
        Predictor(model, batch_size=batch)(clip).scores["class"], expected.scores["class"], atol=1e-6
    )


def test_frames_and_paths(model: Motionformer, clip: Path) -> None:
    predictor = Predictor(model, views=2, crops=1)
    with open_video(clip) as video:
        frames = video.read(range(40))
    one = predictor(str(clip))
    assert one.views["class"].shape == (2, 1, 5)
    np.testing.assert_array_equal(one.views["class"], predictor(frames, fps=30.0).views["class"])
    several = predictor([clip, clip])
    assert not isinstance(several, (list, tuple))
    assert [found.score for found in several] == [one.score] * 2


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_broken_video_stops_nobody(model: Motionformer, folder: Path, num_workers: int) -> None:
    predictor = Predictor(model, views=1, crops=1)
    paths = [folder / "a.mp4", folder / "broken.mp4", folder / "gone.mp4", folder / "b.mp4"]
    found = list(predictor.predict_many(paths, num_workers))
    assert [type(one) for one in found] == [Prediction, Failure, Failure, Prediction]
    assert "Invalid data" in found[1].reason
    assert found[2].reason == "there is no such file"
    assert found[3].top(1) == predictor(paths[3]).top(1)
    with pytest.raises(VideoError, match=r"broken\.mp4: Invalid data"):
        list(predictor(paths))


def read_or_die(reader: ClipReader, path: Path) -> Views:
    """At module level, so that a fresh process finds it."""
    if path.name == "deadly.mp4":
        os._exit(3)
    return ClipReader.read(reader, path)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_video_that_ends_its_process_costs_itself(model: Motionformer, folder: Path, num_workers: int) -> None:
    predictor = Predictor(model, views=1, crops=1)
    predictor.reader.read = partial(read_or_die, predictor.reader)  # type: ignore[method-assign]
    names = ("a.mp4", "deadly.mp4", "b.mp4", "deadly.mp4", "sub/a.mp4")
    paths = [folder / name for name in names]
    found = list(predictor.predict_many(paths, num_workers))
    assert [type(one) for one in found] == [Prediction, Failure, Prediction, Failure, Prediction]
    assert found[1] == Failure(str(paths[1]), "the decoder crashed (exit code 3)", 1)
    for one, path in zip(found, paths, strict=True):
        if isinstance(one, Prediction):
            assert (one.video, one.top(5)) == (str(path), predictor(path).top(5))
    assert multiprocessing.active_children() == []


def test_stopping_early_leaves_no_process(model: Motionformer, folder: Path) -> None:
    running = Predictor(model, views=1, crops=1).predict_many([folder / "a.mp4"] * 6, num_workers=2)
    next(running)
    assert len(multiprocessing.active_children()) == 2
    running.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


def test_verb_noun_and_action(clip: Path) -> None:
    found = Predictor(make_model(num_classes={"verb": 3, "noun": 4}, labels=None))(clip)
    verb, noun = found.scores["verb"], found.scores["noun"]
    pairs = {(v, n): float(verb[v]) * float(noun[n]) for v in range(3) for n in range(4)}
    expected = sorted(pairs, key=lambda pair: -pairs[pair])[:5]
    assert [guess.index for guess in found.top(5)] == expected
    assert found.top(1)[0].label == f"verb {expected[0][0]} noun {expected[0][1]}"
    assert found.top(1)[0].score == pytest.approx(pairs[expected[0]])
    assert found.top(1, "verb")[0].index == verb.argmax()
    with pytest.raises(EvaluationError, match="no task 'place' in this prediction; there is verb, noun"):
        found.top(1, "place")
    plain = found.to_dict(2)
    assert [len(plain[key]) for key in ("top", "verb", "noun")] == [2, 2, 2]


def test_to_json(model: Motionformer, clip: Path) -> None:
    found = Predictor(model, views=2)(clip)
    plain = json.loads(found.to_json(top=2))
    assert plain["video"] == str(clip)
    assert (plain["views"], plain["crops"]) == (2, 3)
    assert [guess["label"] for guess in plain["top"]] == [guess.label for guess in found.top(2)]
    assert plain["top"][0]["score"] == pytest.approx(found.score, abs=1e-6)


def test_from_pretrained(model: Motionformer, clip: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "weights")
    found = Predictor.from_pretrained(tmp_path / "weights", device="cpu")(clip)
    assert found.top() == Predictor(model)(clip).top()


def test_nameless_classes_are_said_once(clip: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="motionformer"):
        predictor = Predictor(make_model(labels=None), views=1)
        assert predictor(clip).label.startswith("class ")
        predictor(clip)
    assert [record.message for record in caplog.records if "are numbered" in record.message] != []
    assert len(caplog.records) == 1


def test_refuses_nonsense(model: Motionformer, clip: Path) -> None:
    with pytest.raises(EvaluationError, match=r"must be 1 \(the centre\) or 3"):
        Predictor(model, crops=2)
    with pytest.raises(EvaluationError, match="must be at least 1"):
        Predictor(model, batch_size=0)
    with pytest.raises(EvaluationError, match="no classes"):
        Predictor(make_model(num_classes=0, labels=None))
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(EvaluationError, match="is not finite"):
        Predictor(model)(clip)


@pytest.mark.shared
def test_real_clips(model: Motionformer, shared: Path) -> None:
    paths = sorted((shared / "data" / "clips").glob("*.*"))[:4]
    assert all(isinstance(found, Prediction) for found in Predictor(model).predict_many(paths))
