"""Video and sound together: which frames are read, features, offsets, and the DeSync score."""

import json
import weakref
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

from motionformer import SyncFeatures, SyncPredictor, load_model, load_synchformer
from motionformer.cli import app
from motionformer.compat.mmaudio import Synchformer
from motionformer.errors import EvaluationError, VideoError
from motionformer.inference import FeatureExtractor, desync_score, read_features
from motionformer.video import open_video
from motionformer.video.resample import by_clock
from motionformer.video.sound import SAMPLE_RATE, read_sound, segments_of, spectrograms
from motionformer.video.stream import stream_at_rate
from motionformer.video.transforms import eval_transform
from motionformer.weights.synchformer import INPUT
from tests.literal.synchformer import LiteralSynchformer, randomise
from tests.parity_files import PARITY

RECORDED = json.loads((PARITY / "synchformer.json").read_text())


def write(
    path: Path,
    frames: int,
    *,
    fps: int = 25,
    sound: float | None = None,
    late: float = 0.0,
    size: tuple[int, int] = (64, 48),
) -> Path:
    """A video whose frame i is grey of a level of its own, and a tone of `sound` seconds, `late` by so many."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=fps, options={"qp": "0", "preset": "ultrafast"})
        video.width, video.height, video.pix_fmt = *size, "gray"
        audio = container.add_stream("pcm_s16le", rate=SAMPLE_RATE, layout="stereo") if sound else None
        for i in range(frames):
            frame = av.VideoFrame.from_ndarray(np.full(size[::-1], 30 + 2 * i, dtype=np.uint8), format="gray")
            frame.pts, frame.time_base = i, Fraction(1, fps)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is not None and sound:
            times = np.arange(round(sound * SAMPLE_RATE)) / SAMPLE_RATE
            left = (8000 * np.sin(2 * np.pi * 440 * times)).astype(np.int16)
            both = np.stack([left, np.zeros_like(left)], axis=1).reshape(1, -1)
            tone = av.AudioFrame.from_ndarray(both, format="s16", layout="stereo")
            tone.sample_rate, tone.pts, tone.time_base = (
                SAMPLE_RATE,
                round(late * SAMPLE_RATE),
                Fraction(1, SAMPLE_RATE),
            )
            container.mux(audio.encode(tone))
            container.mux(audio.encode(None))
    return path


def decoded(file: Path) -> Tensor:
    with open_video(file) as video:
        return video.read(range(len(video)))


def numbers(frames: list[Tensor], file: Path) -> list[int]:
    """Which frames of the file these are."""
    known = decoded(file)
    return [next(i for i, one in enumerate(known) if torch.equal(one, frame)) for frame in frames]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model.pth`: a small Synchformer that compares 4 segments (1.6 s); videos of 2.24 s, too short, and silent."""
    folder = tmp_path_factory.mktemp("place")
    literal = randomise(LiteralSynchformer(64, visual=1, audio=1, layers=1, segments=4))
    torch.save(literal.state_dict(), folder / "model.pth")
    (folder / "videos").mkdir()
    write(folder / "videos/clip.mkv", 56, sound=2.24)
    write(folder / "silent.mkv", 40)
    write(folder / "short.mkv", 24, sound=0.96)
    return folder


class TestReadings:
    @pytest.mark.parametrize("row", RECORDED["clocks"], ids=lambda row: f"{row['pts_step']}-{row['duration_sec']:g}")
    def test_the_clock_picks_the_recorded_frames(self, row: dict) -> None:
        tick = Fraction(*row["time_base"])
        times = ((float(i * row["pts_step"] * tick), i) for i in range(row["num_frames"]))
        assert list(by_clock(times, 25, row["duration_sec"])) == row["indices"]

    def test_the_clock_keeps_what_both_rates_have(self) -> None:
        assert list(by_clock([(0.0, "a"), (0.7, "b")], 25, 0.7)) == ["a", *"b" * 16]  # of 18: int(25 · 0.7)
        assert list(by_clock([(-0.1, "x"), (0.0, "a"), (0.05, "b")], 25)) == ["a", "b"]

    def test_they_are_not_the_same_frames(self, tmp_path: Path) -> None:
        file = write(tmp_path / "25.mkv", 40)
        read = {}
        for how in ("clock", "filter"):
            with stream_at_rate(file, 25, how) as stream:
                read[how] = numbers(list(stream.frames), file)
        assert read["filter"] == list(range(40))
        assert read["clock"][:8] == [0, 1, 2, 3, 4, 5, 7, 7]
        assert read["clock"][18:] == list(range(19, 40))

    def test_the_filter_rounds_and_repeats_one_tensor(self, tmp_path: Path) -> None:
        file = write(tmp_path / "10.mkv", 12, fps=10)
        with stream_at_rate(file, 25, "filter", seconds=1.0) as stream:
            frames = list(stream.frames)
        assert numbers(frames, file) == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 8, 9, 9]
        assert len({id(frame) for frame in frames}) == 10

    def test_a_folder_of_frames_has_no_time_stamps(self, tmp_path: Path) -> None:
        with (
            pytest.raises(VideoError, match="no time stamps for FFmpeg's filter"),
            stream_at_rate(tmp_path, 25, "filter"),
        ):
            pass


class TestSound:
    def test_spectrograms_are_the_recorded_ones(self) -> None:
        recording = load_file(PARITY / "synchformer.safetensors")
        segments = torch.stack(list(segments_of(recording["waveform_16k"].split(1000))))
        assert segments.shape == (2, 10240)
        torch.testing.assert_close(spectrograms(segments)[:, 0], recording["mel"], atol=1e-5, rtol=1e-5)

    def test_channels_are_averaged_and_time_is_the_videos(self, place: Path, tmp_path: Path) -> None:
        wave = read_sound(place / "videos/clip.mkv")
        assert len(wave) == round(2.24 * SAMPLE_RATE)
        expected = 4000 / 32768 * torch.sin(2 * torch.pi * 440 * torch.arange(len(wave)) / SAMPLE_RATE)
        torch.testing.assert_close(wave, expected, atol=2e-4, rtol=0)
        late = read_sound(write(tmp_path / "late.mkv", 20, sound=0.5, late=0.25))
        assert len(late) == round(0.75 * SAMPLE_RATE)
        assert late[:4000].abs().max() == 0
        torch.testing.assert_close(late[4000:], expected[:8000], atol=2e-4, rtol=0)
        torch.testing.assert_close(read_sound(place / "videos/clip.mkv", start=1.0), wave[SAMPLE_RATE:])

    def test_without_one(self, place: Path, tmp_path: Path) -> None:
        with pytest.raises(VideoError, match=r"silent.mkv: has no sound track"):
            read_sound(place / "silent.mkv")
        with pytest.raises(VideoError, match="there is no such file"):
            read_sound(tmp_path / "nothing.wav")
        with pytest.raises(VideoError, match="a folder of frames has no sound"):
            read_sound(tmp_path)


class TestFeatures:
    def test_are_those_of_the_segments(self, place: Path) -> None:
        net = load_model(place / "model.pth")
        file = place / "silent.mkv"
        found = SyncFeatures(net, batch_size=3, resample="filter")(file)
        assert found.shape == (1, 4 * 8, 64)  # 40 frames: segments of 16 every 8
        frames = eval_transform(net.config.input)(decoded(file)).transpose(0, 1)
        segments = torch.stack([frames[i : i + 16] for i in (0, 8, 16, 24)])
        with torch.no_grad():
            torch.testing.assert_close(found, net.sync_features(segments[None]).flatten(1, 2), atol=1e-5, rtol=1e-5)
        again = SyncFeatures(load_synchformer(place / "model.pth"))(file)
        assert not torch.equal(again, found)  # by the clock

    def test_frames_in_memory_and_wrong_options(self, place: Path) -> None:
        net = load_model(place / "model.pth")
        frames = torch.zeros(48, 32, 32, 3, dtype=torch.uint8)
        assert SyncFeatures(net)(frames, fps=50.0).shape == (1, 16, 64)
        with pytest.raises(VideoError, match="too short: 11 frames at 25 per second, a segment takes 16"):
            SyncFeatures(net)(frames[:11], fps=25.0)
        with pytest.raises(EvaluationError, match="frames in memory have no time stamps"):
            SyncFeatures(net, resample="filter")(frames)
        for wrong in (0.0, -1.0, float("nan")):
            with pytest.raises(EvaluationError, match="must be a number of seconds above 0"):
                SyncFeatures(net, seconds=wrong)
        with pytest.raises(EvaluationError, match="have segments of their own"):
            FeatureExtractor(net, segments=0.64)
        with pytest.raises(EvaluationError, match="this model has no features of 'frames'; a Synchformer has"):
            SyncFeatures("motion-tiny")
        with pytest.raises(EvaluationError, match="`resample` and `seconds` are of features of 'frames'"):
            FeatureExtractor("motion-tiny", resample="clock")

    def test_of_the_command(self, place: Path, tmp_path: Path) -> None:
        words = ["features", str(place / "silent.mkv"), "--model", str(place / "model.pth"), "--output", str(tmp_path)]
        result = CliRunner().invoke(app, [*words, "--seconds", "1"])
        assert result.exit_code == 0, result.output
        features, about = read_features(tmp_path / "silent.mkv.npz")
        assert features.values.shape == (2, 8, 64)
        assert features.times.tolist() == [[0.0, 0.64], [0.32, 0.96]]
        assert (about["what"], about["resample"], about["seconds"]) == ("frames", "clock", 1.0)
        assert features.facts is not None
        assert (features.facts.frames, features.facts.distinct_frames) == (16, 15)  # the clock shows frame 7 twice

    def test_memory_does_not_grow_with_the_video(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Frames are held for one segment, and segments for one batch, however long the video is."""
        alive: list[int] = []
        extractor = SyncFeatures(load_model(place / "model.pth"), batch_size=2).extractor
        resize, held = extractor.reader.resize, []

        def counting(frames: Tensor) -> Tensor:
            small = resize(frames)
            held.append(weakref.ref(small))
            alive.append(sum(one() is not None for one in held))
            return small

        monkeypatch.setattr(extractor.reader, "resize", counting)
        monkeypatch.setattr(extractor, "encode", lambda clips: torch.zeros(len(clips), 8, 64))
        assert sum(len(part.values) for part in extractor.stream(place / "videos/clip.mkv")) == 5
        assert max(alive) <= 18
        assert len(held) >= 50


class TestOffsets:
    def test_are_those_of_the_model(self, place: Path) -> None:
        model = load_synchformer(place / "model.pth")
        found = SyncPredictor(model, batch_size=5)(place / "videos/clip.mkv")
        seen = eval_transform(INPUT)(decoded(place / "videos/clip.mkv")).transpose(0, 1)
        wave = read_sound(place / "videos/clip.mkv")
        heard = spectrograms(torch.stack(list(segments_of([wave]))))
        expected = []
        for first in (0, 2):  # 6 segments: the first 4 and the last 4
            segments = torch.stack([seen[8 * i : 8 * i + 16] for i in range(first, first + 4)])
            with torch.no_grad():
                expected.append(model(segments[None], heard[None, first : first + 4])[0].softmax(-1))
        assert found.segments == 6
        assert [(window.start, round(window.end, 2)) for window in found.windows] == [(0.0, 1.6), (0.64, 2.24)]
        for window, scores in zip(found.windows, expected, strict=True):
            assert window.offset == model.offsets[int(scores.argmax())]
            assert window.confidence == pytest.approx(scores.max().item(), abs=1e-5)
        mean = torch.stack(expected).mean(0)
        assert found.offset == model.offsets[int(mean.argmax())]
        assert found.confidence == pytest.approx(mean.max().item(), abs=1e-5)

    def test_along_a_video(self, place: Path) -> None:
        found = SyncPredictor(place / "model.pth", every=0.32)(place / "videos/clip.mkv")
        assert [window.start for window in found.windows] == [0.0, 0.32, 0.64]
        with pytest.raises(EvaluationError, match="`every`"):
            SyncPredictor(place / "model.pth", every=0.0)

    def test_errors(self, place: Path) -> None:
        predict = SyncPredictor(place / "model.pth")
        with pytest.raises(
            VideoError, match=r"short.mkv: is too short: .* have 2 segments together, .* takes 4 \(1.6 s"
        ):
            predict(place / "short.mkv")
        with pytest.raises(VideoError, match=r"silent.mkv: has no sound track"):
            predict(place / "silent.mkv")

    def test_the_recorded_score(self) -> None:
        example = RECORDED["desync"]
        offsets = [[-2 + 0.2 * k for k in two] for two in example["predicted_class_first14_last14"]]
        assert desync_score(offsets) == pytest.approx(example["desync"], abs=1e-6)
        with pytest.raises(EvaluationError, match="one video at least"):
            desync_score([])

    def test_the_command(self, place: Path, tmp_path: Path) -> None:
        (tmp_path / "sounds").mkdir()
        write(tmp_path / "sounds/clip.mkv", 2, sound=2.0)
        words = [
            "sync",
            str(place / "videos"),
            str(place / "silent.mkv"),
            "--model",
            str(place / "model.pth"),
            "--desync",
        ]
        files = ["--json", str(tmp_path / "out.json"), "--csv", str(tmp_path / "out.csv")]
        result = CliRunner().invoke(app, [*words, *files, "--resume"])
        assert result.exit_code == 1  # one is silent
        assert "has no sound track" in result.output
        assert "DeSync" in result.output
        assert "shorter than 8 s" in result.output
        found = json.loads((tmp_path / "out.json").read_text())
        assert (found["resample"], found["seconds"], found["videos"], found["failed"]) == ("filter", 8.0, 1, 1)
        assert found["desync"] == pytest.approx(found["predictions"][0]["desync"])
        assert len((tmp_path / "out.csv").read_text().splitlines()) == 4
        kept = (tmp_path / "out.json").read_bytes()
        result = CliRunner().invoke(app, [*words, *files, "--resume"])
        assert (tmp_path / "out.json").read_bytes() == kept
        result = CliRunner().invoke(app, [*words[:2], *words[3:5], "--sound", str(tmp_path / "sounds"), "--json", "-"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["predictions"][0]["segments"] == 5  # of the other sound
        result = CliRunner().invoke(app, [*words[:2], "--model", str(place / "model.pth"), "--sound", str(place)])
        assert "has no file called clip" in result.output

    def test_wrong_usage(self, place: Path) -> None:
        for words in (["--desync", "--every", "2"], ["--resume"], ["--every", "0"]):
            assert CliRunner().invoke(app, ["sync", str(place / "videos"), *words]).exit_code == 2


class TestMMAudio:
    def test_one_import_line(self, place: Path) -> None:
        state = torch.load(place / "model.pth", weights_only=True)
        net = load_model(place / "model.pth")
        model = Synchformer(net.config).eval()
        model.load_state_dict(state)  # all of it, as there
        segments = torch.randn(1, 2, 16, 3, 224, 224)
        with torch.no_grad():
            expected = net.sync_features(segments)
            assert torch.equal(model(segments), expected)
            torch.testing.assert_close(model.extract_vfeats(segments, for_loop=True), expected, atol=1e-5, rtol=1e-5)
        Synchformer(net.config).load_state_dict(model.state_dict())
        del state["vfeat_extractor.norm.bias"]
        with pytest.raises(RuntimeError, match=r"Missing key.*vfeat_extractor.norm.bias"):
            model.load_state_dict(state)
        with pytest.raises(RuntimeError, match="holds no visual half"):
            model.load_state_dict({"x": torch.zeros(1)})

    def test_by_default_of_the_published_size(self) -> None:
        with torch.device("meta"):
            model, literal = Synchformer(), LiteralSynchformer()
        used = [p for name, p in literal.vfeat_extractor.named_parameters() if not name.startswith("patch_embed.")]
        assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in used)


@pytest.mark.shared
def test_real_clips_are_read_as_recorded(shared: Path) -> None:
    recording = load_file(shared / "parity/protocol/synchformer_input.safetensors")
    files = json.loads((shared / "parity/protocol/synchformer_input.json").read_text())["files"]
    for name, facts in files.items():
        with stream_at_rate(shared / "data/clips" / name, 25, "clock", seconds=8.0) as stream:
            frames = list(stream.frames)
        assert len(frames) == facts["frames_kept"]
        clip = eval_transform(INPUT)(torch.stack(frames[::25]))
        torch.testing.assert_close(clip.transpose(0, 1)[:, :, ::8, ::8], recording[name], atol=1e-5, rtol=0)
