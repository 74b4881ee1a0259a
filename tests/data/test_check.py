"""What `data check` finds out about videos."""

import json
from pathlib import Path

import av
import numpy as np
import pytest
from tests.data.conftest import raw_reader

from motionformer.data import MiddleSegments
from motionformer.data.check import ScanReport, _FileReport, _inspect_video, _Task, scan
from motionformer.data.record import Annotations, ClassNames, Label, Record
from motionformer.data.source import open_dataset
from motionformer.errors import VideoError


def look_at(path: Path, *records: Record, decode: bool = True) -> _FileReport:
    return _inspect_video(_Task(path, records or (Record(path),), min_frames=16, time_limit=30.0, decode=decode))


def test_a_good_video(tmp_path: Path, make_video) -> None:
    report = look_at(make_video(tmp_path / "x.mp4", num_frames=20, fps=25, size=(32, 48)))
    assert (report.path, report.status, report.reasons) == (tmp_path / "x.mp4", "ok", ())
    found = report.metadata
    assert found is not None
    assert (found.num_frames, found.fps, found.duration) == (20, 25.0, 0.8)
    assert (found.height, found.width, found.codec) == (32, 48, "h264")


def test_a_short_video(tmp_path: Path, make_video) -> None:
    report = look_at(make_video(tmp_path / "x.mp4", num_frames=15))
    assert (report.status, report.reasons) == ("short", ("15 frames, fewer than 16",))
    assert look_at(make_video(tmp_path / "y.mp4", num_frames=16)).status == "ok"


def test_pieces_are_compared_with_the_video(tmp_path: Path, make_video) -> None:
    path = make_video(tmp_path / "x.mp4", num_frames=60, fps=30)
    assert look_at(path, Record(path, start=0.0, end=1.0)).status == "ok"
    assert look_at(path, Record(path, start=1.0, end=1.2)).reasons == ("6 frames, fewer than 16",)
    late = look_at(path, Record(path, start=1.0, end=5.0))
    assert (late.status, late.reasons) == ("odd", ("1 pieces end after the video, up to 5 s; the video lasts 2.00 s",))
    outside = look_at(path, Record(path, start=0.0, end=1.0), Record(path, start=7.0, end=9.0, line=12))
    assert (outside.status, outside.reasons) == ("broken", ("a piece begins at 7 s (line 12); the video lasts 2.00 s",))


def test_a_piece_that_begins_in_the_last_frame_is_reported(tmp_path: Path, make_video) -> None:
    """The last of 20 frames appears at 1.9 s; a clip that begins later cannot be read, so it is no good."""
    path = make_video(tmp_path / "x.mp4", num_frames=20, fps=10)
    outside = look_at(path, Record(path), Record(path, start=1.95, end=2.0))
    assert (outside.status, outside.reasons) == ("broken", ("a piece begins at 1.95 s; the video lasts 2.00 s",))
    with pytest.raises(VideoError, match=r"begins at 1\.95 s"):
        raw_reader(MiddleSegments(4)).read_labelled(Record(path, start=1.95, end=2.0))
    for start in (1.9, 1.9 + 1e-9):
        assert look_at(path, Record(path, start=start)).reasons == ("1 frame, fewer than 16",)


def test_pieces_of_a_variable_rate_are_found_by_time(tmp_path: Path, make_video) -> None:
    path = make_video(tmp_path / "x.mkv", num_frames=30, times=[*range(0, 2000, 100), *range(2000, 7000, 500)])
    odd = look_at(path, Record(path, start=0.0, end=2.0))
    assert (odd.status, odd.reasons) == ("odd", ("variable frame rate",))
    short = look_at(path, Record(path, start=6.0, end=6.6))
    assert short.reasons == ("2 frames, fewer than 16", "variable frame rate")


def test_a_variable_rate_is_odd(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "x.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.height, stream.width, stream.pix_fmt = 32, 48, "yuv420p"
        for index in range(20):
            frame = av.VideoFrame.from_ndarray(np.full((32, 48, 3), 9 * index, np.uint8), format="rgb24")
            frame.pts = index if index < 10 else 3 * index
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    report = look_at(tmp_path / "x.mkv")
    assert (report.status, report.reasons) == ("odd", ("variable frame rate",))


def test_broken_files_keep_the_decoders_reason(tmp_path: Path, make_video) -> None:
    whole = make_video(tmp_path / "whole.mp4", num_frames=60).read_bytes()
    contents = {"empty": b"", "text": b"not a video\n" * 99, "cut": whole[: len(whole) // 2]}
    for name, content in contents.items():
        (tmp_path / f"{name}.mp4").write_bytes(content)
    reasons = {name: look_at(tmp_path / f"{name}.mp4") for name in [*contents, "absent"]}
    assert {report.status for report in reasons.values()} == {"broken"}
    assert "0 bytes" in reasons["empty"].reasons[0]
    assert "Invalid data" in reasons["text"].reasons[0]
    assert "moov" in reasons["cut"].reasons[0], "FFmpeg's own words"
    assert "no such file" in reasons["absent"].reasons[0]


def test_quick_does_not_decode(tmp_path: Path, make_video) -> None:
    path = make_video(tmp_path / "x.mp4", num_frames=60)
    content = bytearray(path.read_bytes())
    start = content.index(b"mdat") + 4
    half = start + (content.index(b"moov") - start) // 2
    content[half : half + 600] = bytes(600)
    path.write_bytes(content)
    assert look_at(path, decode=False).status == "ok"
    assert look_at(path).status != "ok"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, make_video) -> Path:
    root = tmp_path_factory.mktemp("set")
    for name in ("clap", "wave [fast]"):
        for index in range(2):
            make_video(root / name / f"{index}.mp4", num_frames=20)
    (root / "clap" / "bad.mp4").write_text("no video")
    return root


def test_scan_of_a_folder(folder: Path, tmp_path: Path) -> None:
    annotations = [open_dataset(folder)]
    files = tuple(scan(annotations, num_workers=2))
    assert len(files) == 5
    report = ScanReport(tuple(annotations), files)
    assert not report.is_well
    assert report.statuses() == {"ok": 4, "odd": 0, "short": 0, "broken": 1}
    assert [file.path.name for file in report.problems()] == ["bad.mp4"]
    assert report.kinds()["codec"] == {"h264": 4}
    assert report.durations()["median"] == pytest.approx(20 / 30)
    content = json.loads(report.to_json())
    assert content["datasets"][0]["classes"] == {"clap": 3, "wave [fast]": 2}
    assert [file["status"] for file in content["files"]].count("broken") == 1
    report.write_csv(tmp_path / "r.csv")
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert lines[0] == "path,status,reasons,num_frames,fps,duration,height,width,codec,label"
    assert len(lines) == 6
    assert lines[5].endswith("h264,wave [fast]")


def test_a_video_listed_for_two_pieces_is_decoded_once(folder: Path) -> None:
    path = folder / "clap" / "0.mp4"
    pieces = Annotations((Record(path, 0, 0.0, 0.3), Record(path, 0, 0.3, 0.6)), ("clap",), "pieces")
    assert len(list(scan([pieces], num_workers=1, min_frames=4))) == 1


def test_pieces_of_different_classes_have_all_of_them(tmp_path: Path) -> None:
    video, other = Path("match.mp4"), Path("other.mp4")
    files = (_FileReport(video, "ok"), _FileReport(other, "ok"))

    def column(*labels: Label) -> list[str]:
        pieces = (Record(video, label, float(i), i + 1.0) for i, label in enumerate(labels))
        unlabelled = Record(other, () if isinstance(labels[0], tuple) else None)
        names: ClassNames = ("run", "jump")
        if isinstance(labels[0], dict):
            names = {"verb": ("take", "cut"), "noun": ("cup", "bread")}
        ScanReport((Annotations((*pieces, unlabelled), names, "pieces"),), files).write_csv(tmp_path / "r.csv")
        return [line.rpartition(",")[2] for line in (tmp_path / "r.csv").read_text().splitlines()]

    assert column(1, 0, 1) == ["label", "jump|run", ""]
    assert column((0, 1), (0,), ()) == ["label", "run|jump", ""]
    assert column({"verb": 1, "noun": 1}, {"verb": 0, "noun": 0}) == ["label", "cut bread|take cup", ""]


def test_a_file_name_that_is_no_utf8_is_written(tmp_path: Path) -> None:
    path = Path("videos/caf\udce9.mp4")
    report = ScanReport((Annotations((Record(path, 0),), ("a",), "odd"),), (_FileReport(path, "ok"),))
    report.write_csv(tmp_path / "r.csv")
    assert b"videos/caf\xe9.mp4,ok" in (tmp_path / "r.csv").read_bytes()
    (tmp_path / "r.json").write_text(report.to_json(), encoding="utf-8")
    assert json.loads((tmp_path / "r.json").read_text())["files"][0]["path"] == str(path)
