"""What the critics expect beside what the policy achieves, roughly, in one unit: discounted return of real rewards."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from rl_training.analysis.logged_run import RETURN, Curve, LoggedRun
from rl_training.report.bands import Group
from rl_training.runtime.validating.concerns import settled_share

Q, LENGTH = "train/q_mean", "eval/length_mean"


@dataclass(frozen=True)
class ValueCurves:
    """Mean value of the critics on training batches, and the return of evaluations as such a value."""

    expected: Curve
    achieved: Curve
    endless: bool  # whether what is achieved goes on without end
    settled: NDArray[np.float64]  # share of the way from 0 to their values that the critics of each member have gone


def value_curves(group: Group) -> ValueCurves | str | None:
    """Return both curves of a group, or why they cannot be compared; None without critics or without evaluations.

    An evaluation reports undiscounted returns, so the achieved value is that of even rewards: the mean reward of a step times
    the discounted number of steps, without end where all episodes were cut by the time limit, since critics look beyond a
    cut. That is asked of all episodes of the run, or a curve would jump by the one episode that ended. Where rewards are
    large early or late in an episode, the true discounted return differs from it by several times: it only tells a critic
    that is off by an order of magnitude.
    """
    run = group.run
    if not {Q, RETURN, LENGTH} <= set(run.history):
        return None
    scale, shift, clipped = reward_transform(run)
    if scale is None:
        return "the scale of the rewards was fitted on the data, and no checkpoint tells it"
    if scale == 0.0 or clipped:
        return "rewards were clipped or scaled by 0, which cannot be undone"
    expected, returns, lengths = run.curve(Q), run.curve(RETURN), run.curve(LENGTH)
    cut = _cut(run, lengths)
    ends = (run.record.get("dataset") or {}).get("true_ends", int(not cut))
    if shift != 0.0 and ends:  # it adds to a value once for each step that is left
        return (
            "rewards were shifted, which cannot be undone where episodes may end: values do not tell how many steps are left"
        )
    gamma = group.knobs.get("gamma", run.config.algo_kwargs.gamma)
    ended = 0.0 if cut else 1.0
    steps = Curve(lengths.positions, (1.0 - ended * gamma**lengths.values) / (1.0 - gamma))
    achieved = Curve(returns.positions, returns.values / lengths.values * steps.values)
    real = Curve(expected.positions, (expected.values - shift / (1.0 - gamma)) / scale)
    return ValueCurves(real, achieved, cut, _settled(group, steps.last()))


def _settled(group: Group, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far critics have come whose values are those of so many steps; a learner's `settled` asks it without end."""
    knobs, updates = group.run.config.algo_kwargs, group.run.history["step"].max(initial=0.0)
    tau, gamma = (group.knobs.get(name, getattr(knobs, name)) for name in ("tau", "gamma"))
    ahead = np.minimum((1.0 - gamma**knobs.n_step) / (1.0 - gamma), steps)
    return settled_share(updates / knobs.target_interval, tau, ahead / steps)


def _cut(run: LoggedRun, lengths: Curve) -> bool:
    """Whether all episodes of all evaluations lasted until the time limit; where that is not recorded, as the data tells."""
    limit = run.record.get("time_limit")
    if limit is None:
        return bool((run.record.get("dataset") or {}).get("true_ends") == 0)
    return bool(np.all(np.isnan(lengths.values) | (lengths.values >= limit)))


def reward_transform(run: LoggedRun) -> tuple[float | None, float, bool]:
    """Return scale and shift that a learner's rewards were multiplied by and raised by, and whether they were clipped.

    The scale is None where it was fitted on the data and the run has no checkpoint that holds it.
    """
    saved = _saved_transform(run)
    if saved is not None:
        return saved[0], saved[1], bool(np.isfinite(saved[2:]).any())
    reward: Any = run.config.algo_kwargs.reward_transform
    fitted = reward.normalize is True or reward.is_automatic
    return None if fitted else reward.scale, reward.shift, reward.clip is not None


def _saved_transform(run: LoggedRun) -> list[float] | None:
    """Scale, shift, lower and upper limit from the latest checkpoint; None if there is none that can be read."""
    folder = run.path / "checkpoints"
    try:
        name = json.loads((folder / "latest.json").read_bytes())["checkpoint"]
        with safetensors.safe_open(folder / name / "state.safetensors", framework="numpy") as tensors:
            values: list[float] = tensors.get_tensor("transforms/reward").tolist()
            return values if len(values) == 4 else None
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        return None
