"""One picture → a PNG file, through the encoder that PyAV brings. Reading is `video.images.decode_image`."""

from fractions import Fraction
from pathlib import Path

from av import CodecContext, VideoFrame
from av.video.codeccontext import VideoCodecContext

from motionformer.files import write_atomically


def write_png(file: str | Path, picture: VideoFrame) -> None:
    """Store a picture in the pixel format it has: `pal8` and `rgb24` are among those a PNG can hold."""
    codec = CodecContext.create("png", "w")
    assert isinstance(codec, VideoCodecContext)
    codec.height, codec.width = picture.height, picture.width
    codec.pix_fmt = picture.format.name
    codec.time_base = Fraction(1)  # the encoder asks for one, though a picture has no time
    packets = [*codec.encode(picture), *codec.encode(None)]
    write_atomically(Path(file), b"".join(bytes(packet) for packet in packets))
