"""What the doctor finds."""

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning"]


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
