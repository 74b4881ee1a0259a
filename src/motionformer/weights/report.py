"""What happened to each tensor on the way from a file into a model."""

from dataclasses import dataclass, field


@dataclass
class LoadReport:
    """Tensors that were loaded as they are, and every one that was not, with the reason.

    Attributes:
        resized: interpolated to another clip size, frame count or patch size.
        reset: not taken from the file; they keep their random start.
        dropped: in the file, not in the model.
        notes: anything else worth knowing.
    """

    source: str
    loaded: int = 0
    resized: dict[str, str] = field(default_factory=dict)
    reset: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the model differs from the file in anything that was asked of the file."""
        return bool(self.resized or self.reset)

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.loaded} tensors loaded"]
        for title, entries in (("resized", self.resized), ("reset", self.reset), ("dropped", self.dropped)):
            lines += [f"  {title}: {', '.join(names)} ({reason})" for reason, names in _by_reason(entries).items()]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _by_reason(entries: dict[str, str]) -> dict[str, list[str]]:
    """Names under their reason; the blocks of one kind become one name, `blocks.*`."""
    reasons: dict[str, list[str]] = {}
    for name, reason in entries.items():
        parts = name.split(".")
        short = ".".join("*" if part.isdigit() else part for part in parts)
        if short not in reasons.setdefault(reason, []):
            reasons[reason].append(short)
    return reasons
