"""What the runtime reads of a run's configuration; the config schema of the experiment layer fits this shape."""

from collections.abc import Mapping
from typing import Any, Protocol


class EarlyStoppingSettings(Protocol):
    """When to stop a member before its budget."""

    @property
    def patience(self) -> int | None:
        """Evaluations without improvement."""

    @property
    def min_delta(self) -> float:
        """What counts as improvement."""

    @property
    def threshold(self) -> float | None:
        """Return that is good enough."""


class RunSettings(Protocol):
    """Everything about a run except what is special to its algorithm."""

    @property
    def algo(self) -> str: ...
    @property
    def env_id(self) -> str | None: ...
    @property
    def member_seeds(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def total_timesteps(self) -> int: ...
    @property
    def max_epochs(self) -> int | None: ...
    @property
    def max_updates(self) -> int | None: ...
    @property
    def eval_interval(self) -> int: ...
    @property
    def eval_episodes(self) -> int: ...
    @property
    def checkpoint_interval(self) -> int: ...
    @property
    def keep_checkpoints(self) -> int: ...
    @property
    def log_interval(self) -> int: ...
    @property
    def schedules(self) -> Mapping[str, str]: ...
    @property
    def early_stopping(self) -> EarlyStoppingSettings | None: ...
    @property
    def algo_kwargs(self) -> Any: ...
    def record(self) -> dict[str, Any]:
        """Return the resolved configuration as plain JSON values."""
