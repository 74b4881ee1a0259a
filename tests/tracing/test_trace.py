"""From a model and a clip to pictures and numbers."""

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse
from PIL import Image

import motionformer
from motionformer import Predictor, create_model
from motionformer.data.motion import MotionBenchmark, write_videos
from motionformer.errors import AnnotationError, TraceError
from motionformer.models import Motionformer
from motionformer.tracing import compare, path_error, trace
from motionformer.tracing.draw import _draw_filmstrip, _draw_frames, _heat
from motionformer.weights import load_model
from tests.video.numbered import write_damaged

TINY = ("motionformer-tiny", "joint-tiny", "divided-tiny")


def make(name: str = "motionformer-tiny", noise: float = 0.2, **changes: object) -> Motionformer:
    """Untrained; with more noise, its maps have peaks."""
    model = create_model(name, depth=2, dim=24, num_heads=3, **changes)
    for parameter in model.parameters():
        parameter.data.add_(noise * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real file, 20 frames of 64 × 64 at 30 a second."""
    folder = tmp_path_factory.mktemp("clips") / "motion"
    write_videos(folder, "easy", 1, frames=20, size=64, fps=30)
    return folder / "right" / "00000.mp4"


class TestTrace:
    @pytest.mark.parametrize("name", TINY)
    def test_the_map_is_the_recorded_attention(self, name: str) -> None:
        """Of the query's token, in the layer asked for, averaged over heads; space sums to one, and so do frames."""
        model, clip = make(name), MotionBenchmark("easy", "val", 8)[5]
        found = trace(model, clip.frames, point=(20.0, 30.0), frame=3, layer=1)
        assert (found.query.token_frame, found.query.row, found.query.column) == (1, 3, 2)
        [track] = found.tracks
        assert torch.allclose(track.map.space.sum(dim=1), torch.ones(4, dtype=torch.float64))
        assert track.map.mass.sum().item() == pytest.approx(1.0)
        per_head = trace(model, clip.frames, point=(20.0, 30.0), frame=3, layer=1, head="all").tracks
        shares = [1.0 - one.map.prefix for one in per_head]
        mean = sum(one.map.weights * share for one, share in zip(per_head, shares, strict=True)) / sum(shares)
        assert torch.allclose(track.map.weights, mean, atol=1e-6)

    def test_a_model_that_looks_at_what_is_alike_finds_it(self) -> None:
        """Queries and keys that are the colour of a patch: the path of a white square is the white square's."""
        model = make(num_prefix_tokens=0)
        attention = model.blocks[0].attn
        with torch.no_grad():
            model.tokens.proj.weight.zero_()
            model.tokens.proj.weight[0] = 1.0
            model.tokens.proj.bias.zero_()
            model.positions.space.zero_()
            model.positions.time.zero_()
            attention.qkv.weight.zero_()
            attention.qkv.bias.zero_()
            for part in range(2):  # the first channel, of queries and of keys, in every head
                attention.qkv.weight[torch.arange(3) * 8 + part * 24, 0] = 10.0
        frames = torch.zeros(8, 48, 48, 3, dtype=torch.uint8)
        cells = [(1, 1), (2, 1), (3, 2), (4, 4)]
        for t in range(8):
            column, row = cells[t // 2]
            frames[t, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = 255
        found = trace(model, frames, point=(2 * 8 + 4.0, 1 * 8 + 4.0), frame=2, layer=0)
        wanted = torch.tensor([[c * 8 + 4.0, r * 8 + 4.0] for c, r in cells], dtype=torch.float64)
        assert torch.allclose(found.tracks[0].path, wanted, atol=0.5)

    def test_a_file_equals_its_frames(self, video: Path) -> None:
        from motionformer.video import read_frames

        model = make()
        of_file = trace(model, video, point=(30.0, 20.0), frame=9)
        assert of_file.clip.numbers == (5, 6, 7, 8, 9, 10, 11, 12)
        of_frames = trace(model, read_frames(video, of_file.clip.numbers), point=(30.0, 20.0), frame=4)
        assert torch.equal(of_file.tracks[0].path, of_frames.tracks[0].path)

    def test_a_training_model_is_given_back_as_it_was(self) -> None:
        model = make(attention_dropout=0.5).train()
        clip = MotionBenchmark("easy", "val", 8)[0]
        first, second = trace(model, clip), trace(model, clip)
        assert model.training
        assert torch.equal(first.tracks[0].path, second.tracks[0].path)

    def test_a_predictor_is_its_model_and_results_describe_themselves(self) -> None:
        model, clip = make(noise=2.0).eval(), MotionBenchmark("easy", "val", 8)[5]
        found = trace(Predictor(model), clip.frames, (20.0, 30.0), frame=3, name="mine", device="cpu")
        assert torch.equal(found.tracks[0].path, trace(model, clip.frames, (20.0, 30.0), frame=3).tracks[0].path)
        assert repr(found) == "Trace(trajectory of (20, 30), model 'mine', clip 'clip', 1 track)"
        assert repr(found.clip) == "Clip('clip', 8 frames 48×48, frames 0 to 7)"
        assert repr(found.tracks[0]).startswith("Track(layer 1, head mean: ")
        assert motionformer.trace is trace

    def test_motion_clips_know_their_object(self) -> None:
        model = make()
        found = trace(model, "motion:hard/12")
        clip = MotionBenchmark("hard", "val", 13)[12]
        assert (found.query.x, found.query.y) == pytest.approx(tuple(clip.path[4].tolist()))
        assert torch.equal(found.clip.truth, clip.path)
        assert torch.equal(found.tracks[0].path, trace(model, clip).tracks[0].path)

    @pytest.mark.parametrize("what", ["class-token", "rollout", "gradcam"])
    @pytest.mark.parametrize("name", TINY)
    def test_without_a_point(self, name: str, what: str) -> None:
        found = trace(make(name), "motion:easy/1", what=what, layer="all")
        assert found.query is None
        assert [track.layer for track in found.tracks] == ["0", "1"]
        assert (found.label is not None) == (what == "gradcam")

    def test_rollout_of_a_point(self) -> None:
        model = make("divided-tiny")
        of_point = trace(model, "motion:easy/1", what="rollout", point=(20.0, 20.0))
        of_class = trace(model, "motion:easy/1", what="rollout")
        assert of_point.query is not None
        assert not torch.allclose(of_point.tracks[0].map.weights, of_class.tracks[0].map.weights)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"point": (48.0, 3.0)}, "outside the frame"),
            ({"frame": 8}, "there is no frame 8; it has 8, counted from 0 to 7"),
            ({"layer": 2}, "there is no layer 2: the model has 2"),
            ({"head": "3"}, "there is no head 3: the model has 3"),
            ({"what": "dreams"}, "must be one of trajectory, class-token, rollout, gradcam"),
            ({"what": "gradcam", "label": 8}, "there is no class 8: the model has 8, counted from 0 to 7"),
            ({"what": "gradcam", "label": "jump"}, "no class 'jump': it has no names"),
            ({"what": "gradcam", "head": 1}, "tokens, which have no heads"),
            ({"what": "rollout", "head": 1}, "averaged heads"),
            ({"what": "class-token", "point": (4.0, 3.0)}, "class-token takes no point: .* trajectory or rollout"),
            ({"what": "gradcam", "point": (4.0, 3.0)}, "gradcam takes no point: leave --point"),
            ({"what": "rollout", "label": "left"}, "rollout takes no class: leave --label .* use gradcam"),
            ({"label": 0}, "trajectory takes no class"),
        ],
    )
    def test_questions_without_answer(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(TraceError, match=message):
            trace(make(), MotionBenchmark("easy", "val", 8)[0], **options)

    def test_clips_that_are_none(self) -> None:
        model = make()
        with pytest.raises(TraceError, match=r"uint8 \[t H W 3\].*not float32 \[1, 3, 8, 48, 48\]"):
            trace(model, torch.zeros(1, 3, 8, 48, 48))
        with pytest.raises(TraceError, match=r"number of frames \(7\) must be divisible by the tubelet \(2\)"):
            trace(model, torch.zeros(7, 48, 48, 3, dtype=torch.uint8), point=(1.0, 1.0))
        with pytest.raises(TraceError, match="give the point to trace"):
            trace(model, torch.zeros(8, 48, 48, 3, dtype=torch.uint8))
        for text in ("motion:", "motion:odd/3"):
            with pytest.raises(AnnotationError, match=r"there is no level '(odd)?'; there are easy, medium, hard"):
                trace(model, text)
        for text in ("motion:easy", "motion:easy:4", "motion:easy/-1"):
            with pytest.raises((AnnotationError, TraceError), match=r"clip.*write motion:easy/3"):
                trace(model, text)

    def test_models_that_cannot_answer(self) -> None:
        with pytest.raises(TraceError, match="no class token"):
            trace(make(num_prefix_tokens=0), "motion:easy/1", what="class-token")
        with pytest.raises(TraceError, match="no classes"):
            trace(make(num_classes=0), "motion:easy/1", what="gradcam")
        model = make()
        model.blocks[1] = torch.nn.Module()
        with pytest.raises(TraceError, match="no attention to show"):
            trace(model, "motion:easy/1")


class TestFiles:
    def test_json_says_what_was_read(self, tmp_path: Path) -> None:
        write_videos(tmp_path / "slow", "easy", 1, frames=20, size=64, fps=8)
        read = trace(make(), tmp_path / "slow" / "right" / "00000.mp4", point=(32.0, 32.0)).to_dict()
        assert read["distinct_frames"] == len(set(read["frames"])) < len(read["frames"])
        assert read["damaged"] is False
        damaged = trace(make(), write_damaged(tmp_path / "x.mp4"), point=(32.0, 32.0), frame=30).to_dict()
        assert damaged["damaged"] is True

    def test_json_holds_everything(self, tmp_path: Path) -> None:
        found = trace(make(), "motion:easy/3", layer="all", head="all")
        found.save(tmp_path / "t.json")
        read = json.loads((tmp_path / "t.json").read_text())
        assert len(read["tracks"]) == 6
        assert read["query"]["number"] == 4
        frame = read["tracks"][2]["token_frames"][3]
        assert frame["frames"] == [6, 7]
        x = sum(weight * (8 * column + 4) for row in frame["map"] for column, weight in enumerate(row))
        assert frame["x"] == pytest.approx(x)

    def test_a_filmstrip(self, tmp_path: Path) -> None:
        found = trace(make(), "motion:easy/3")
        picture = np.asarray(Image.open(io.BytesIO(found.to_png())).convert("RGB")).astype(int)
        assert picture.shape[1] > picture.shape[0] > 200
        for red, green, blue in ((0xE4, 0x00, 0x3A), (0x00, 0xD6, 0x8F)):  # the query and the true path are there
            assert (np.abs(picture - [red, green, blue]).sum(axis=-1) < 12).any()
        found.save(tmp_path / "t.svg")
        assert "<path" in (tmp_path / "t.svg").read_text()

    def test_moving_pictures(self, tmp_path: Path) -> None:
        found = trace(make(), "motion:easy/3")
        found.save(tmp_path / "t.gif")
        found.save(tmp_path / "t.mp4")
        with Image.open(tmp_path / "t.gif") as gif:
            assert gif.n_frames == 8
            size = gif.size
        with av.open(str(tmp_path / "t.mp4")) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert len(frames) == 8
        assert frames[0].shape[:2] == size[::-1]
        assert any((a != b).any() for a, b in itertools.pairwise(frames))

    def test_side_by_side(self, tmp_path: Path) -> None:
        both = compare({"one": make(), "two": make("joint-tiny", frames=4)}, "motion:easy/3")
        both.save(tmp_path / "t.json")
        assert [one["model"] for one in json.loads((tmp_path / "t.json").read_text())] == ["one", "two"]
        assert both.to_png().startswith(b"\x89PNG")
        both.save(tmp_path / "t.gif")

    def test_files_that_cannot_be_written(self, tmp_path: Path) -> None:
        found = trace(make(), "motion:easy/3")
        with pytest.raises(TraceError, match=r"must be one of png, pdf, svg, gif, mp4, json; not \.bmp"):
            found.save(tmp_path / "t.bmp")
        with pytest.raises(TraceError, match="cannot be written"):
            found.save(tmp_path / "nowhere" / "t.json")

    def test_pictures_and_json_show_where_it_looks_most(self) -> None:
        found = trace(load_model("motion-tiny"), "motion:easy/3", layer="mean")
        assert found.tracks[0].has_peak.all()
        peak = found.tracks[0].peak
        assert not torch.equal(peak, found.tracks[0].path)
        lines = [line.get_xydata() for line in _draw_filmstrip(found.rows).axes[0].get_lines()]
        assert any(line.shape == peak.shape and np.allclose(line, peak) for line in lines)
        written = [frame["peak"] for frame in found.to_dict()["tracks"][0]["token_frames"]]
        assert [[place["x"], place["y"]] for place in written] == peak.tolist()

    def test_dollars_in_names_are_dollars(self) -> None:
        model = make(num_classes=2, labels=("$_$", "b"))
        found = trace(model, "motion:easy/3", what="gradcam", label="$_$", name="a$_$")
        assert found.to_png().startswith(b"\x89PNG")
        assert len(_draw_frames(found.rows)) == 8

    def test_too_many_rows(self) -> None:
        found = trace(
            create_model("joint-tiny", depth=17, dim=24, num_heads=4), "motion:easy/3", layer="all", head="all"
        )
        with pytest.raises(TraceError, match="68 rows do not fit"):
            found.to_png()


class TestNearUniform:
    """A map that is the same everywhere is not drawn as if it went somewhere."""

    @pytest.mark.parametrize("name", TINY)
    def test_an_untrained_model_has_no_path(self, name: str) -> None:
        found = trace(create_model(name), "motion:easy/5", layer="mean", name="model")
        [track] = found.tracks
        assert not track.has_peak.any()
        assert track.peak.isnan().all()
        assert found.note(track) == "no path: near uniform"
        [written] = json.loads(found.to_json())["tracks"]
        assert written["note"] == "no path: near uniform"
        for frame in written["token_frames"]:
            assert frame["peak"] is None
            assert frame["reason"] == "the map is near uniform"
            assert 0 <= frame["peakedness"] < 0.05
        figure = _draw_filmstrip(found.rows)
        for ax in figure.axes[:4]:
            assert drawn(ax) <= {"#00d68f", "#e4003a"}  # the truth and the query, nothing of the model
            assert [text.get_text() for text in ax.texts] == ["near uniform"]
        assert "no path: near\nuniform" in "\n".join(text.get_text() for text in figure.texts)
        assert "where it looks most" not in [text.get_text() for text in figure.legends[0].get_texts()]
        assert not any(_heat(found, track, f).any() for f in range(4))

    def test_a_trained_model_has_one(self) -> None:
        found = trace(load_model("motion-tiny"), "motion:easy/5", layer="mean")
        assert found.note(found.tracks[0]) is None
        figure = _draw_filmstrip(found.rows)
        assert all("#ffffff" in drawn(ax) and not ax.texts for ax in figure.axes[:4])
        assert "where it looks most" in [text.get_text() for text in figure.legends[0].get_texts()]

    def test_a_path_has_a_gap_where_a_frame_is_flat(self) -> None:
        found = trace(load_model("motion-tiny"), "motion:easy/5", layer="mean")
        [track] = found.tracks
        peak, share = track.peak.clone(), track.peakedness.clone()
        peak[1], share[1] = torch.nan, 0.01
        found = replace(found, tracks=(replace(track, peak=peak, peakedness=share),))
        assert found.note(found.tracks[0]) == "no path: near uniform in 1 of 4 token frames"
        frames = found.to_dict()["tracks"][0]["token_frames"]
        assert [frame["peak"] is None for frame in frames] == [False, True, False, False]
        axes = _draw_filmstrip(found.rows).axes[:4]
        lines = [line.get_xydata() for line in axes[0].get_lines() if len(line.get_xydata()) == 4]
        assert any(np.isnan(line[1]).all() and np.isfinite(line[[0, 2, 3]]).all() for line in lines)
        assert [len(ax.texts) for ax in axes] == [0, 1, 0, 0]
        assert [any(isinstance(patch, Ellipse) for patch in ax.patches) for ax in axes] == [True, False, True, True]

    @pytest.mark.parametrize("what", ["class-token", "rollout"])
    def test_other_kinds_are_not_hot_everywhere(self, what: str) -> None:
        found = trace(create_model("motionformer-tiny"), "motion:easy/5", what=what)
        assert found.note(found.tracks[0]) == "near uniform"
        assert not any(_heat(found, found.tracks[0], f).any() for f in range(4))
        assert len(_draw_frames(found.rows)) == 8

    def test_frames_without_evidence_say_so(self) -> None:
        found = trace(load_model("motion-tiny"), "motion:easy/5", what="gradcam")
        [track] = found.tracks
        track = replace(track, map=replace(track.map, mass=torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)))
        track = replace(track, peakedness=torch.tensor([0.01, 0.0, 0.3, 0.3], dtype=torch.float64))
        frames = replace(found, tracks=(track,)).to_dict()["tracks"][0]["token_frames"]
        reasons = ["the map is near uniform", "the frame gets no weight", None, None]
        assert [frame["reason"] for frame in frames] == reasons

    @pytest.mark.parametrize("what", ["trajectory", "class-token"])
    def test_heat_against_a_uniform_map(self, what: str) -> None:
        """Doublings of a uniform map, of the frame or of the clip; 16 times and more is the hottest."""
        found = trace(load_model("motion-tiny"), "motion:easy/5", what=what, layer=2, scale="absolute")
        [track] = found.tracks
        for f in range(4):
            shown = _heat(found, track, f)
            for i, level in enumerate(shown.flat):
                share = float(track.map.space[f, i]) * 36
                if what != "trajectory":
                    share *= float(track.map.mass[f]) * 4
                assert level == pytest.approx(min(max(np.log2(share), 0.0), 4.0) / 4.0)
        assert 0 < shown.max() <= 1
        [caption] = [text.get_text() for text in _draw_filmstrip(found.rows).texts if "heat" in text.get_text()]
        assert caption == "heat, absolute: 1 to 16 × uniform over the " + ("frame" if what == "trajectory" else "clip")
        assert found.to_dict()["scale"] == "absolute"

    def test_pictures_say_which_scale(self) -> None:
        relative = trace(make(), "motion:easy/5")
        captions = [text.get_text() for text in _draw_filmstrip(relative.rows).texts]
        assert "heat, relative: 0 to the frame's largest weight" in captions
        with pytest.raises(TraceError, match=r"`scale` \('loud'\) must be one of relative, absolute"):
            trace(make(), "motion:easy/5", scale="loud")


def drawn(ax: Axes) -> set[str]:
    """The colours of all lines, rectangles and ellipses of a panel but its border."""
    lines = {to_hex(line.get_color()) for line in ax.get_lines()}
    return lines | {to_hex(patch.get_edgecolor()) for patch in ax.patches}


class TestPathError:
    @pytest.mark.parametrize("of", ["path", "peak"])
    def test_equals_a_loop_over_clips(self, of: str) -> None:
        model, benchmark = make(noise=0.5), MotionBenchmark("easy", "val", 3)
        both = path_error(model, benchmark)
        errors = {"path": both.everywhere, "peak": both.peak_everywhere}[of]
        wanted, stay = [], []
        for clip in benchmark:
            path = getattr(trace(model, clip, layer=1, head=2).tracks[0], of)
            for f in (0, 1, 3):  # the query is in frame 4, so in token frame 2
                near = []
                for place in (path[f].tolist(), clip.path[4].tolist()):
                    ways = []
                    for dx in (-48, 0, 48):
                        for dy in (-48, 0, 48):
                            a, b = clip.path[2 * f].tolist(), clip.path[2 * f + 1].tolist()
                            b = [bi + 48 * round((ai - bi) / 48) for ai, bi in zip(a, b, strict=True)]
                            truth = [(ai + bi) / 2 for ai, bi in zip(a, b, strict=True)]
                            ways.append(float(np.hypot(place[0] - truth[0] + dx, place[1] - truth[1] + dy)))
                    near.append(min(ways) / 8)
                wanted.append(near[0])
                stay.append(near[1])
        assert errors.num_frames == 9
        assert errors.by_head[1, 2].item() == pytest.approx(np.mean(wanted), abs=1e-4)
        assert errors.stay == pytest.approx(np.mean(stay), abs=1e-4)

    def test_the_trained_model_looks_at_the_disc(self) -> None:
        """Where it looks most is much nearer than staying where the query is; the mean of its maps is not."""
        benchmark = MotionBenchmark("easy", "test", 24, frames=8, size=48)
        errors = path_error(load_model("motion-tiny"), benchmark)
        assert errors.peak_whole.overall < 0.7 * errors.peak_whole.stay
        assert errors.peak_everywhere.overall < 0.8 * errors.peak_everywhere.stay
        assert errors.whole.overall > errors.whole.stay
        assert errors.peaked > 0.95
        assert path_error(create_model("motionformer-tiny"), MotionBenchmark("easy", "test", 4)).peaked == 0.0

    def test_of_no_clips(self) -> None:
        with pytest.raises(TraceError, match="no clips"):
            path_error(make(), MotionBenchmark("easy", "val", 0))


def test_real_clips(shared: Path) -> None:
    """A file of another shape than the model's, with the point near the border of what is seen."""
    found = trace(make(), shared / "data" / "clips" / "v_SoccerJuggling_g23_c01.avi", point=(60.0, 120.0), frame=50)
    assert found.clip.numbers[found.query.frame] == 50
    assert found.query.column == 0
    with pytest.raises(TraceError, match="sees the middle"):
        trace(make(), shared / "data" / "clips" / "v_SoccerJuggling_g23_c01.avi", point=(5.0, 120.0))
