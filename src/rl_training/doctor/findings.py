"""What the doctor finds."""

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning"]


def option(**settings: object) -> str:
    """Return read options as the shell takes them, and as keys of a config: "--ends timeouts (`ends: timeouts`)"."""
    flags = [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in settings.items()]
    keys = [f"`{name}: {'true' if value is True else value}`" for name, value in settings.items()]
    return f"{' '.join(flags)} ({', '.join(keys)})"


@dataclass(frozen=True)
class Finding:
    """Something wrong or doubtful."""

    code: str
    severity: Severity
    evidence: str  # what was seen, where
    fix: str  # what to do, often a flag to add

    def __str__(self) -> str:
        return f"{self.code}: {self.evidence}; {self.fix}"

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)
