"""Checks of rewards: do they belong to their rows, and are they rewards at all?"""

from collections.abc import Iterator

from rl_training.doctor.alignment import find_shift
from rl_training.doctor.evidence import CheckInput
from rl_training.doctor.findings import Finding, option
from rl_training.doctor.running_sum import find_running_sum


def check_rewards(inputs: CheckInput) -> Iterator[Finding]:
    """Rewards that are a running sum, or shifted against transitions."""
    data = inputs.data
    if "rewards" in inputs.bad or "observations" in inputs.bad:
        return
    found = find_running_sum(data)
    if found is not None:
        evidence = f"rewards look like a running sum: {found}"
        fix = (
            'take the differences: `reward: "diff(NAME)"` in the column map, or in arrays r[t] - r[t - 1] inside each episode'
        )
        yield Finding("running-sum", "warning", evidence, fix)
        return
    if len(inputs.leaks):  # then the seams are no evidence
        return
    fields = (data.observations, data.actions, data.rewards, data.next_observations, data.terminals)
    shift = find_shift(*fields, data.episode_ends)
    if shift is not None:
        seen = (
            f"rewards {'are' if shift.sure else 'seem to be'} one row {'late' if shift.lag > 0 else 'early'}: {shift.reason}"
        )
        across = {"reward_lag_across": True} if shift.across else {}
        fix = f"{'' if shift.sure else 'if they are not smoothed or delayed, '}add {option(reward_lag=shift.lag, **across)}"
        yield Finding("shifted-rewards", "error" if shift.sure else "warning", seen, fix)
