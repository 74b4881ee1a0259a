"""One spelling of arguments, old ones with a warning; models by name, data by address; results that show themselves."""

from pathlib import Path

import numpy as np
import pytest

from motionformer import FeatureExtractor, Predictor, create_model, evaluate
from motionformer.errors import EvaluationError
from motionformer.inference import ClassScore, Features, Prediction, Timeline, open_source
from motionformer.models import Motionformer
from tests.children import run_code
from tests.inference.made import Linear, Numbers, made_results, random_scores


def test_old_spellings_are_read_with_a_warning_that_names_the_new_one(model: Motionformer) -> None:
    with pytest.warns(FutureWarning, match=r"`batch` of Predictor.__init__ is deprecated .* use `batch_size`"):
        assert Predictor(model, batch=3).scorer.batch_size == 3  # type: ignore[call-arg]
    with pytest.warns(FutureWarning, match="`decoder` .* leave it out"):
        Predictor(model, decoder="pyav")  # type: ignore[call-arg]
    with pytest.warns(FutureWarning, match="use `batch_size`"):
        assert FeatureExtractor(model, batch=3).batch_size == 3  # type: ignore[call-arg]
    with pytest.warns(FutureWarning, match="`seconds_a_part` of evaluate is deprecated .* leave it out"):
        evaluate(Linear(), Numbers(), seconds_a_part=1.0)


def test_evaluate_takes_a_folder_of_weights_and_an_address(tmp_path: Path) -> None:
    model = create_model("motionformer-tiny", frames=4, size=16, dim=16, depth=1, num_heads=2, num_classes=8)
    model.save_pretrained(tmp_path / "model")
    found = evaluate(tmp_path / "model", "motion:easy:6", batch_size=4, seed=3)
    assert found.header.model == str(tmp_path / "model")
    expected = evaluate(model, open_source("motion:easy:6", model.config.input, seed=3), batch_size=4)
    np.testing.assert_array_equal(found.scores["class"], expected.scores["class"])
    with pytest.raises(EvaluationError, match="is one view"):
        evaluate(model, "motion:easy:6", views=2)
    with pytest.raises(TypeError, match="views: options of an address"):
        evaluate(model, open_source("motion:easy:6", model.config.input), views=2)
    with pytest.raises(TypeError, match="needs an opened source"):
        evaluate(Linear(), "motion:easy:6")


def test_predictor_takes_a_folder_of_weights(model: Motionformer, clip: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    expected = Predictor(model)(clip)
    for predictor in (Predictor(tmp_path), Predictor.from_pretrained(tmp_path, "cpu")):
        np.testing.assert_array_equal(predictor(clip).scores["class"], expected.scores["class"])


def test_results_show_themselves(model: Motionformer) -> None:
    views = {"class": np.array([[[0.05, 0.93, 0.02]]], dtype=np.float32)}
    prediction = Prediction("clip.mp4", {"class": ("stop", "swipe left", "wave")}, views, 1.0, 2.5)
    assert repr(prediction) == "Prediction('clip.mp4' 1.0–2.5 s: swipe left 0.93, stop 0.05, wave 0.02)"
    assert repr(prediction.top(1)) == "[ClassScore('swipe left' 0.930, index 1)]"
    assert ClassScore("wave", 0.5, 2) == ClassScore("wave", 0.5, 2)
    assert repr(Timeline("long.mp4", 2.5, (prediction,))) == "Timeline('long.mp4': 2.5 s, 1 window)"
    features = Features(np.zeros((3, 768), dtype=np.float32), np.array([[0, 1], [1, 2], [2, 3]], dtype=np.float64))
    assert repr(features) == "Features(3 × 768 float32, 0.0–3.0 s)"
    assert repr(Predictor(model)).startswith("Predictor(")
    assert "videos" in repr(made_results({"class": random_scores(5, 1, 1, 7)}, {"class": [0, 1, 2, 3, 4]}))


def test_results_give_their_metrics() -> None:
    scores = np.eye(4, dtype=np.float32)[[0, 1, 2, 0]][:, None, None]
    found = made_results({"class": scores}, {"class": np.arange(4)})
    assert found.metrics["class"]["top1"] == 0.75
    assert repr(found) == "Results('m' on 'made': 4 videos, 1 × 1 views, top1 0.750)"


def test_wrong_precision_device_and_both_names(model: Motionformer) -> None:
    program = "from motionformer import *; Predictor(create_model('motionformer-tiny'), precision='8')"
    wrong = run_code(program)  # no type checks
    assert "EvaluationError: `precision` ('8') must be one of 32, bf16, 16." in wrong.stderr
    with pytest.raises(EvaluationError, match=r"`device` \(banana\) cannot be used here"):
        Predictor(model, device="banana")
    with pytest.raises(TypeError, match="`batch` is the deprecated name of `batch_size`"):
        Predictor(model, batch=2, batch_size=4)  # type: ignore[call-arg]


def test_a_deprecation_points_at_the_line_that_uses_the_old_name(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(
        "from motionformer import *\n"
        "model = create_model('motionformer-tiny', attend='nystrom')\n"
        "Predictor(model, batch=3)\n"
    )
    shown = run_code(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')").stderr  # no type checks
    assert f"{program}:2: FutureWarning: `attend`" in shown
    assert f"{program}:3: FutureWarning: `batch`" in shown


def test_an_unknown_argument_is_one_of_the_public_function(model: Motionformer) -> None:
    with pytest.raises(TypeError, match=r"^evaluate\(\) has no argument `veiws`; .*precision, .*\bviews, crops"):
        evaluate(model, "motion:easy:6", veiws=3)
