"""The checks of the doctor: each detects one kind of fault and reports what was seen, where, and what to do."""

from collections.abc import Callable, Iterator

from rl_training.doctor.checks.actions import check_actions, check_copies, check_spaces
from rl_training.doctor.checks.clocks import check_clocks
from rl_training.doctor.checks.columns import check_columns, check_counters, check_finite, check_outliers, check_stuck
from rl_training.doctor.checks.copies import check_duplicate_columns, check_rewards_in_observations
from rl_training.doctor.checks.echoes import check_echoes
from rl_training.doctor.checks.ends import check_duplicates, check_ends, check_missing_ends, check_successors
from rl_training.doctor.checks.files import check_units
from rl_training.doctor.checks.rewards import check_reward_outliers, check_reward_values, check_rewards
from rl_training.doctor.evidence import CheckInput
from rl_training.doctor.findings import Finding

Check = Callable[[CheckInput], Iterator[Finding]]
QUICK_CHECKS: tuple[Check, ...] = (
    *(check_spaces, check_finite, check_ends, check_missing_ends, check_successors, check_clocks),
    *(check_actions, check_copies, check_echoes, check_columns, check_reward_values),
    *(check_duplicate_columns, check_rewards_in_observations),
)
THOROUGH_CHECKS: tuple[Check, ...] = (
    *(check_units, check_outliers, check_stuck, check_counters, check_duplicates, check_reward_outliers, check_rewards),
)
