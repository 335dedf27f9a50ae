"""The data of an offline run put together: read, looked over by the doctor, split, processed."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rl_training.data.doctor import quick_findings
from rl_training.data.environments import environment_spaces
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_view import RowView
from rl_training.data.spaces import Spaces
from rl_training.data.subsets import split_views
from rl_training.knobs import VALIDATION_ROWS
from rl_training.runtime.offline import build_offline_dataset, load_file
from rl_training.runtime.processing import RunData, process_offline_dataset
from rl_training.runtime.progress import Reporter
from rl_training.runtime.settings import RunSettings, ValidationSettings
from rl_training.runtime.validation import Validation

DEFAULT_FRACTION = 0.1  # of the episodes, where a run has no environment to be judged in
_MOST_WARNINGS = 6


@dataclass(frozen=True, eq=False)
class OfflineData:
    """What an offline run learns from, and what it is checked against."""

    dataset: TransitionDataset
    train: RunData
    validation: Validation | None
    fingerprint: str


def offline_data(
    settings: RunSettings,
    dataset: TransitionDataset | None,
    reporter: Reporter,
    check: Callable[[], None],
    *,
    returns_to_go: bool = False,
) -> OfflineData:
    """Return the data of a run; what was recognised, what is doubtful and what is held out is said on the way."""
    if dataset is None:
        dataset = build_offline_dataset(settings, check)
    if dataset.origin:
        reporter.note(f"data: {dataset.origin}")
    _look_over(dataset, settings, reporter)
    wish: ValidationSettings | None = getattr(settings.algo_kwargs, "validation", None)
    fraction = DEFAULT_FRACTION if wish is None else wish.fraction
    fingerprint, held = dataset.fingerprint, None
    train = RowView(dataset)
    if wish is not None and wish.path is not None:
        other = load_file(wish, settings.algo_kwargs.max_dataset_bytes)
        fingerprint = hashlib.sha256(f"{fingerprint} validation {other.fingerprint}".encode()).hexdigest()
        held = RowView(other)
        if other.fingerprint == dataset.fingerprint:
            reporter.warn("the validation data is the training data itself, so its losses say nothing")
    elif fraction and (wish is not None or (settings.env_id is None and len(dataset.episode_spans[0]) > 1)):
        train, held = split_views(dataset, fraction, 0 if wish is None else wish.seed)
    data = process_offline_dataset(train, settings, returns_to_go=returns_to_go, spaces=_joint_spaces(dataset, held))
    validation = None
    if held is not None:
        other_data = process_offline_dataset(held, settings, returns_to_go=returns_to_go, like=data)
        rows = VALIDATION_ROWS if wish is None else wish.max_rows
        validation = Validation(other_data, settings.algo_kwargs.batch_size, rows)
    _say_what_is_held_out(settings, reporter, held, train)
    return OfflineData(dataset, data, validation, fingerprint)


def _joint_spaces(dataset: TransitionDataset, held: RowView | None) -> Spaces:
    """The dataset's spaces; where no bounds are recorded, wide enough for the held-out data too."""
    spaces = dataset.spaces
    if (
        held is None
        or held.dataset is dataset
        or dataset.action_low is not None
        or held.dataset.action_dim != spaces.action_dim
    ):
        return spaces
    other = held.dataset.spaces
    low, high = np.minimum(spaces.action_low, other.action_low), np.maximum(spaces.action_high, other.action_high)
    return replace(spaces, action_low=low, action_high=high)


def _look_over(dataset: TransitionDataset, settings: RunSettings, reporter: Reporter) -> None:
    """The cheap part of the doctor."""
    env = None if settings.env_id is None else environment_spaces(settings.env_id)
    found = quick_findings(dataset, env)
    for finding in found[:_MOST_WARNINGS]:
        reporter.warn(f"data: {finding}")
    if len(found) > _MOST_WARNINGS:
        reporter.warn(f"data: {len(found) - _MOST_WARNINGS} more findings; see `rl-training data doctor`")


def _say_what_is_held_out(settings: RunSettings, reporter: Reporter, held: RowView | None, train: RowView) -> None:
    if held is not None:
        reporter.note(
            f"held out: {len(held):,} rows beside {len(train):,} to learn from; losses on them are `validation/...`"
        )
    if settings.env_id is None:
        rest = "held-out losses are all there is" if held is not None else "nothing is held out either"
        reporter.note(f"no environment (env_id is null): evaluation is skipped, {rest}")
