"""Clips of released weights, from the file to the network, as the authors' own program makes them."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data import Annotations, ClipReader, Record, eval_sampler, middle_sampler, open_dataset, train_sampler
from motionformer.finetuning.options import FinetuneOptions, Hardware, VideoFacts, finetune_recipe
from motionformer.inference import FeatureExtractor, Predictor
from motionformer.inference.timeline import Windows
from motionformer.inference.views import FileVideos, ReadVideo
from motionformer.models import InputSpec, ModelConfig, Motionformer
from motionformer.tracing import find_geometry, open_clip
from motionformer.training.model import build_config
from motionformer.training.recipe import ModelPart, Recipe
from motionformer.training.sources import VideoSource
from motionformer.video import open_video
from motionformer.video.sample import segment_indices, segment_middles
from motionformer.video.transforms import eval_transform
from motionformer.weights import RELEASED, load_model
from tests.data.conftest import raw_reader
from tests.inference.conftest import make_model
from tests.literal.released_clip import read_view
from tests.parity_files import PARITY
from tests.video.numbered import read_number, write_images, write_video

SPEC = InputSpec(frames=4, stride=4, height=32, width=32, views=3, crops=3, protocol="released")


@pytest.fixture(params=["wide", "tall", "thin", "avi"])
def video(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Pixels that are not square, B-frames, other rates, sides that do not divide; a clock of one tick a frame."""
    if request.param == "avi":
        return write_video(tmp_path / "x.avi", codec="mpeg4", fps=25, num_frames=70)
    shape = {"wide": (64, 96), "tall": (98, 66), "thin": (32, 100)}[request.param]
    aspect = Fraction(64, 51)
    return write_video(
        tmp_path / "x.mp4", fps=24, num_frames=70, height=shape[0], width=shape[1], aspect=aspect, b_frames=2
    )


def literal(video: Path, spec: InputSpec) -> Tensor:
    return torch.stack(
        [
            read_view(video, spec.frames, spec.stride, spec.height, view, spec.views, crop)
            for view in range(spec.views)
            for crop in range(3)
        ]
    )


def test_predictor_and_evaluation_read_what_the_release_reads(video: Path) -> None:
    expected = literal(video, SPEC)
    reader = ClipReader(SPEC)
    predicted = torch.stack(list(reader.clips(reader.read(video), torch.device("cpu"))))
    torch.testing.assert_close(predicted, expected, atol=1e-5, rtol=0)
    evaluated = FileVideos(Annotations((Record(video, 0),), ("a",), "x"), SPEC).read(0)
    assert isinstance(evaluated, ReadVideo)
    torch.testing.assert_close(evaluated.views, expected, atol=1e-5, rtol=0)


def test_uniform_reads_other_clips(video: Path) -> None:
    reader = ClipReader(InputSpec(frames=4, stride=4, height=32, width=32, views=3, crops=3))
    found = torch.stack(list(reader.clips(reader.read(video), torch.device("cpu"))))
    assert (found - literal(video, SPEC)).abs().mean() > 0.01


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "arm_wrestling.mp4",
        "v_SoccerJuggling_g23_c01.avi",
        "R6llTwEh07w.mp4",
        *(pytest.param(f"{name}.mp4", marks=pytest.mark.slow) for name in ("juggle", "SOX5yA1l24A", "basketball")),
    ],
)
def test_recorded_tensors_of_the_release(name: str, shared: Path) -> None:
    """Real clips, 16×4, 32×3 and 16×8, 224 and 336 pixels: frame numbers, every kept pixel, mean and std."""
    folder = shared / "parity" / "protocol"
    case = json.loads((folder / "pixels_index.json").read_text())[name]
    shape = {"frames": case["frames"], "stride": case["stride"], "height": case["size"], "width": case["size"]}
    spec = InputSpec(**shape, views=case["views"], crops=3, protocol="released")
    reader, path = ClipReader(spec), shared / "data" / "clips" / name
    with open_video(path) as opened:
        chosen = reader.sampler(opened.clock)
    assert chosen == [case["views_all"][str(view)]["frame_indices"] for view in range(case["views"])]
    clips = list(reader.clips(reader.read(path), torch.device("cpu")))
    step, recorded = case["subsample"]["frames_step"], load_file(folder / case["file"])
    for key, expected in recorded.items():
        view, crop = (int(part[-1]) for part in key.split("."))
        clip = clips[view * 3 + crop]
        torch.testing.assert_close(clip[:, ::step, ::8, ::8], expected, atol=1e-5, rtol=0)
        facts = case["statistics"][key]
        assert abs(clip.double().mean().item() - facts["mean"]) < 1e-5
        assert abs(clip.double().std(correction=0).item() - facts["std"]) < 1e-5


def test_load_model_sets_it_for_the_authors_files_and_an_option_overrules() -> None:
    file = PARITY / "tiny_official.pyth"
    assert load_model(file).config.input.protocol == "released"
    assert load_model(file, protocol="uniform").config.input.protocol == "uniform"
    assert all(model.input.protocol == "released" for model in RELEASED.values())


def test_an_unknown_protocol_lists_the_known_ones(run_python: Callable[[str], str]) -> None:
    call = f"import motionformer; motionformer.load_model({str(PARITY / 'tiny_official.pyth')!r}, protocol='exact')"
    said = run_python(f"try:\n    {call}\nexcept ValueError as error:\n    print(error)")
    assert "`protocol` must be one of uniform, released; not 'exact'" in said


def test_it_stays_with_a_saved_model(tmp_path: Path) -> None:
    load_model(PARITY / "tiny_official.pyth").save_pretrained(tmp_path / "m")
    assert load_model(tmp_path / "m").config.input.protocol == "released"


def test_a_converted_model_of_before_is_told_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_model(PARITY / "tiny_official.pyth").save_pretrained(tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    config = json.loads(file.read_text())
    del config["architecture"]["input"]["protocol"]
    file.write_text(json.dumps(config))
    assert load_model(tmp_path / "m").config.input.protocol == "uniform"
    assert "saved before weights carried a sampling protocol" in caplog.text
    caplog.clear()
    assert load_model(tmp_path / "m", protocol="released").config.input.protocol == "released"
    assert "saved before" not in caplog.text


@pytest.fixture
def model() -> Motionformer:
    return Motionformer(ModelConfig(dim=32, depth=1, num_heads=2, patch=16, num_classes=3, input=SPEC)).eval()


def test_predictor_scores_the_released_clips(model: Motionformer, video: Path) -> None:
    with torch.no_grad():
        expected = model(literal(video, SPEC)).softmax(-1).reshape(3, 3, 3)
    found = Predictor(model)(video).views
    np.testing.assert_allclose(next(iter(found.values())), expected, atol=1e-5)


def test_features_and_validation_take_the_middle_of_the_slack(model: Motionformer, video: Path) -> None:
    """16 frames at 24 fps cover 12.8 of 70: the middle clip begins after half of the rest."""
    with open_video(video) as opened:
        (chosen,) = middle_sampler(SPEC)(opened.clock)
    assert abs(chosen[0] - (opened.metadata.num_frames - 16 * opened.metadata.fps / 30) / 2) <= 1  # type: ignore[operator]
    clip, _ = raw_reader(middle_sampler(SPEC), (eval_transform(SPEC),)).read_labelled(Record(video, 0))
    with torch.no_grad():
        x = model.embed(clip[None])
        for block in model.blocks:
            x = block(x, 2)
    np.testing.assert_allclose(FeatureExtractor(model)(video).values[0], model.norm(x)[0, 0].detach(), atol=1e-5)


def test_trace_sees_stored_pixels_and_the_released_frames(model: Motionformer, video: Path) -> None:
    clip = open_clip(video, model.config, frame=30)
    assert 30 in clip.numbers
    assert [b - a for a, b in zip(clip.numbers, clip.numbers[1:], strict=False)] in ([3, 4, 4], [3, 4, 5], [4, 4, 4])
    with open_video(video, square_pixels=False) as opened:
        stored = opened.metadata.height, opened.metadata.width
    assert tuple(clip.frames.shape[1:3]) == stored
    assert find_geometry(model.config, stored).resized == tuple(
        eval_transform(SPEC).steps[1](torch.zeros(3, 1, *stored)).shape[2:]
    )


def test_one_crop_of_segments_is_the_first(tmp_path: Path) -> None:
    """The Something-Something program takes the left or upper crop where it takes one; the Kinetics one the centre."""
    video = write_video(tmp_path / "x.mp4", num_frames=12)
    spec = InputSpec(frames=4, height=32, width=32, sampling="segments", views=1, crops=1, protocol="released")
    reader = ClipReader(spec)
    (one,) = reader.clips(reader.read(video), torch.device("cpu"))
    three = ClipReader(InputSpec(**{**spec.__dict__, "crops": 3}))
    left, *_ = three.clips(three.read(video), torch.device("cpu"))
    assert torch.equal(one, left)


def test_pieces_of_epic_are_read_at_the_assumed_rate(tmp_path: Path) -> None:
    """The list says 59.94, the release takes 60: late in the video that is another frame."""
    frames = tmp_path / "P01" / "rgb_frames" / "P01_01"
    write_images(frames, "frame_%010d.png", num_frames=250, first=1)
    (tmp_path / "EPIC_100_train.csv").write_text(
        "narration_id,participant_id,video_id,start_timestamp,stop_timestamp,verb_class,noun_class\n"
        "P01_01_0,P01,P01_01,00:00:03.50,00:00:04.10,1,2\n"
    )
    (tmp_path / "EPIC_100_video_info.csv").write_text("video_id,fps\nP01_01,57\n")
    (record,) = open_dataset(tmp_path / "EPIC_100_train.csv", root=tmp_path).records
    assert record.assumed_fps == 60.0
    spec = InputSpec(frames=4, stride=4, views=1, protocol="released")
    (clip,) = (raw_reader(eval_sampler(spec)).read_labelled(record)[0],)
    # frames 210 to 245: 32 of them from the first, 31/3 apart, files counted from 1 and the drawn numbers from 0
    assert [read_number(frame) for frame in clip] == [210, 220, 230, 241]


def test_a_recipe_chooses_it_for_training_and_validation(tmp_path: Path) -> None:
    for number in range(2):
        write_video(tmp_path / f"{number}.mp4", num_frames=40)
    source = VideoSource(
        Annotations(tuple(Record(tmp_path / f"{number}.mp4", number) for number in range(2)), ("a", "b"), "x")
    )
    recipe = Recipe(name="x", model=ModelPart("motionformer-tiny", {"input": {"protocol": "released", "stride": 4}}))
    spec = build_config(recipe, 2).input
    assert spec.protocol == "released"
    training, validation = source.training_items(recipe, spec), source.validation_items(recipe, spec)
    assert training.reader.sampler == train_sampler(spec)  # type: ignore[attr-defined]
    assert validation.reader.sampler == middle_sampler(spec)  # type: ignore[attr-defined]
    assert training.reader.sampler.protocol == "released"  # type: ignore[attr-defined]


@pytest.mark.parametrize("video", ["wide"], indirect=True)
def test_commands_choose_it_and_say_it(model: Motionformer, video: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
    shown = runner.invoke(app, ["info", str(tmp_path / "m"), "--json"])
    assert json.loads(shown.output)["protocol"] == "released"
    assert "released protocol" in runner.invoke(app, ["info", str(tmp_path / "m")]).output
    scores = {}
    for protocol in ("released", "uniform"):
        asked = ["predict", str(video), "--model", str(tmp_path / "m"), "--protocol", protocol, "--json", "-"]
        read = json.loads(runner.invoke(app, asked).stdout)
        assert read["protocol"] == protocol
        scores[protocol] = read["predictions"][0]["top"][0]["score"]
    assert scores["released"] != scores["uniform"]


def test_windows_of_segments_follow_it() -> None:
    spec = InputSpec(frames=4, sampling="segments", protocol="released")
    (one,) = Windows.even(spec, 30.0, 1.0).slide(range(30))
    assert one.frames == segment_middles(30, 4) != segment_indices(30, 4)


def test_trace_knows_the_released_size() -> None:
    """Of 114 recorded sizes those where rounding first loses a pixel."""
    config = ModelConfig(input=InputSpec(protocol="released"))
    figures = json.loads((PARITY / "protocol.json").read_text())["geometry"]
    cases = [case for case in figures if case["size"] == 224]
    assert [list(find_geometry(config, (c["height"], c["width"])).resized) for c in cases] == [
        c["resized"] for c in cases
    ]
    plain = ModelConfig()
    assert any(list(find_geometry(plain, (c["height"], c["width"])).resized) != c["resized"] for c in cases)


@pytest.mark.parametrize("video", ["wide"], indirect=True)
def test_features_of_another_protocol_are_not_kept(model: Motionformer, video: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "m")
    words = ["features", str(video), "--model", str(tmp_path / "m"), "--out", str(tmp_path / "f"), "--resume"]
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
    assert runner.invoke(app, words).exit_code == 0
    other = runner.invoke(app, [*words, "--protocol", "uniform"])
    assert "holds other features: protocol differ" in str(other.exception)


def test_a_new_model_from_released_weights_is_uniform() -> None:
    start = load_model(PARITY / "tiny_official.pyth").config
    recipe = finetune_recipe(
        FinetuneOptions(name="x", init_from="y"),
        VideoFacts(30, 2.5, 120),
        Hardware(False, 16 << 30, 2),
        num_train=40,
        initial_config=lambda _: start,
    )
    assert build_config(recipe, 2).input.protocol == "uniform"


def test_a_timeline_takes_stored_pixels(tmp_path: Path) -> None:
    """The pixel aspect is ignored there too: the frames as they are stored give the same scores."""
    file = write_video(tmp_path / "x.mp4", fps=24, num_frames=40, height=64, width=66, aspect=Fraction(64, 33))
    predictor = Predictor(make_model(protocol="released"), device="cpu")
    found = predictor.timeline(file)
    with open_video(file, square_pixels=False) as stored:
        frames = stored.read(list(range(40)))
    streamed = list(predictor.stream(iter(frames), fps=24.0))
    assert len(found.windows) == len(streamed) > 1
    for one, other in zip(found.windows, streamed, strict=True):
        np.testing.assert_allclose(one.scores["class"], other.scores["class"], atol=1e-6)
