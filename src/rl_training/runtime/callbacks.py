"""Callbacks: user code that the loop calls, with state that is saved and resumed."""

import inspect
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from rl_training.envs.evaluation import Evaluation
from rl_training.errors import CheckpointError, ConfigError

Rows = Sequence[dict[str, Any]]
Stop = Collection[int] | bool | None
"""What a hook returns: None or True continues, False stops the run, members are stopped one by one."""


class Callback:
    """Called by the loop at its hooks; override what you need.

    Every hook may stop training: return False to stop all members, or the members to stop; None and True continue. What
    stops is evaluated and saved first. A callback must depend only on its arguments and its state, or a resumed run will
    not repeat the uninterrupted one: return all state from `state_dict`, as plain JSON values.
    """

    def on_start(self, learner: Any) -> Stop:
        """Receive the learner before the first step; read it, do not change it."""

    def on_log(self, step: int, rows: Rows) -> Stop:
        """Receive the metric rows of training, or of held-out data, just written; one per active member."""

    def on_evaluation(self, step: int, evaluation: Evaluation, active: Collection[int]) -> Stop:
        """Receive an evaluation in the environment."""

    def on_metrics(self, step: int, rows: Rows) -> Stop:
        """Receive all metric rows just written, those of evaluations too; a plain function is called here."""

    def on_checkpoint(self, step: int, path: str) -> Stop:
        """Receive the path of a checkpoint just written."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to keep through a resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""


class FunctionCallback(Callback):
    """Calls a plain function `f(step, rows)` with all metric rows."""

    def __init__(self, function: Callable[[int, Rows], Any]) -> None:
        self.function = function

    def on_metrics(self, step: int, rows: Rows) -> Stop:
        """Return what the function returns."""
        answer: Stop = self.function(step, rows)
        return answer


CallbackLike = Callback | Callable[[int, Rows], Any]
"""A Callback, or a function `f(step, rows)`."""


def as_callbacks(given: CallbackLike | Sequence[CallbackLike] | None) -> list[Callback]:
    """Return the callbacks of an argument: none, one, or a list of them, each a Callback or a function."""
    if given is None:
        return []
    return [_as_callback(one) for one in (given if isinstance(given, Sequence) else [given])]


def _as_callback(given: Any) -> Callback:
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) or not callable(given):
        raise ConfigError(
            f"callback = {given!r} is not legal: must be a Callback or a list of them; functions f(step, rows) count as such"
        )
    try:
        inspect.signature(given).bind(0, [])
    except (TypeError, ValueError):
        raise ConfigError(f"callback = {given!r} is not legal: a function is called as f(step, rows)") from None
    return FunctionCallback(given)


def call_hook(callbacks: Sequence[Callback], hook: str, active: Sequence[int], *arguments: Any) -> set[int]:
    """Call a hook of every callback; return the active members that their answers stop."""
    stopped: set[int] = set()
    for callback in callbacks:
        answer = getattr(callback, hook)(*arguments)
        stopped |= _stopped(answer, active, f"{hook} of {type(callback).__name__}")
    return stopped


def _stopped(answer: Any, active: Sequence[int], where: str) -> set[int]:
    if answer is None or isinstance(answer, bool | np.bool_):
        return set(active) if answer is not None and not answer else set()
    try:
        return {operator.index(member) for member in answer} & set(active)
    except TypeError:
        raise ConfigError(f"{where} returned {answer!r}: return False to stop, the members to stop, or None") from None


class EarlyStopping(Callback):
    """Stops a member that reached `threshold`, or that did not improve by `min_delta` for `patience` evaluations."""

    def __init__(self, patience: int | None = None, min_delta: float = 0.0, threshold: float | None = None) -> None:
        self.patience, self.min_delta, self.threshold = patience, min_delta, threshold
        self._best: dict[int, float] = {}
        self._waited: dict[int, int] = {}

    def on_evaluation(self, step: int, evaluation: Evaluation, active: Collection[int]) -> Collection[int]:
        """Return the members to stop."""
        del step
        stopped = []
        for member in active:
            score = evaluation.member_means[member]
            if member not in self._best or score > self._best[member] + self.min_delta:
                self._best[member], self._waited[member] = score, 0
            else:
                self._waited[member] += 1
            reached = self.threshold is not None and score >= self.threshold
            exhausted = self.patience is not None and self._waited[member] >= self.patience
            if reached or exhausted:
                stopped.append(member)
        return stopped

    @staticmethod
    def of_member(entry: dict[str, Any], member: int) -> dict[str, Any]:
        """Return a saved callback entry for a solo run: of early stopping, one member's part; any other entry unchanged."""
        if entry["name"] != EarlyStopping.__name__:
            return entry
        parts = {name: {"0": by[str(member)]} for name, by in entry["state"].items() if str(member) in by}
        return {**entry, "state": {"best": {}, "waited": {}, **parts}}

    def state_dict(self) -> dict[str, Any]:
        """Return best scores and waiting times by member."""
        return {
            "best": {str(member): value for member, value in self._best.items()},
            "waited": {str(member): value for member, value in self._waited.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore best scores and waiting times."""
        self._best = {int(member): float(value) for member, value in state["best"].items()}
        self._waited = {int(member): int(value) for member, value in state["waited"].items()}
        if set(self._best) != set(self._waited):
            raise ValueError("`best` and `waited` are of different members")


def callback_states(callbacks: Sequence[Callback]) -> list[dict[str, Any]]:
    """Return the states of callbacks for a checkpoint."""
    states = [{"name": type(callback).__name__, "state": callback.state_dict()} for callback in callbacks]
    return [entry for entry in states if entry["state"]]


def restore_callbacks(callbacks: Sequence[Callback], saved: Sequence[dict[str, Any]], warn: Callable[[str], None]) -> None:
    """Restore each saved state to the callback of the same class name, in order; warn where there is none.

    A state that the callback cannot take is a CheckpointError: the file may have been changed, or the callback.
    """
    remaining = list(callbacks)
    for entry in saved:
        callback = next((c for c in remaining if type(c).__name__ == entry["name"]), None)
        if callback is None:
            warn(f"the checkpoint holds the state of a callback {entry['name']} that was not given")
            continue
        remaining.remove(callback)
        try:
            callback.load_state_dict(entry["state"])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise CheckpointError(
                f"the callback {entry['name']} cannot take its state in the checkpoint ({reason})"
            ) from error
