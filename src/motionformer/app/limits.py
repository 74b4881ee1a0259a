"""What a page accepts, in one place: enforced by the server, stated in the page, explained in the refusal."""

from dataclasses import asdict, dataclass

from motionformer.errors import PageError

MEGABYTE = MEGAPIXEL = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Of one page."""

    megabytes: float = 50.0
    seconds: float = 60.0
    """Length of a video."""
    megapixels: float = 4.0
    """Of a frame: decoded ones are held in memory, a clip of them for each question."""
    users: int = 4
    """Pages that may be open at once. Questions are answered one at a time, so each further one makes all wait."""
    idle_minutes: float = 15.0
    """After which a page that asks nothing loses its place, and its upload is deleted."""

    def check_size(self, num_bytes: int) -> None:
        """Refuses a file that is too large, before or while it arrives."""
        if num_bytes > self.megabytes * MEGABYTE:
            raise PageError(
                f"the file is larger than {self.megabytes:g} MB, the most this page takes. Cut or shrink the video, or "
                f"start the page with --max-mb.",
                status=413,
            )

    def check_length(self, seconds: float) -> None:
        """Refuses a video that is too long to be answered about while somebody waits."""
        if seconds > self.seconds:
            raise PageError(
                f"the video lasts {seconds:.1f} s; this page takes {self.seconds:g} s. Cut it, start the page with "
                f"--max-seconds, or use motionformer predict --timeline, which takes any length.",
                status=413,
            )

    def check_frame(self, width: int, height: int) -> None:
        """Refuses frames that are too large: a small file can hold huge ones."""
        if width * height > self.megapixels * MEGAPIXEL:
            raise PageError(
                f"the frames are {width}×{height}; this page takes {self.megapixels:g} megapixels. Shrink the video, "
                f"or start the page with --max-megapixels.",
                status=413,
            )

    def to_dict(self) -> dict[str, float]:
        return asdict(self)
