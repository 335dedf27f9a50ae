"""Prepares the data of a run: made or read, checked by the doctor, split, processed."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any

import numpy as np

from rl_training.config.blocks import VALIDATION_ROWS, FileConfig, ValidationConfig
from rl_training.config.run import RunConfig
from rl_training.data.dataset_loaders import read_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_datasets
from rl_training.data.processing import Fitted, RunData, process_dataset
from rl_training.data.reading.guards import check_size
from rl_training.data.reading.notes import Count
from rl_training.data.row_view import RowView
from rl_training.data.spaces import Spaces
from rl_training.data.subsets import filter_view, ranked_by_length, split_views
from rl_training.data.transforms import Transforms
from rl_training.doctor.doctor import quick_findings
from rl_training.envs.environments import environment_spaces, infer_env_spaces
from rl_training.envs.recipes import make_dataset
from rl_training.errors import CheckpointError, ConfigError, DatasetError
from rl_training.faults import fault_point
from rl_training.registry import get_spec
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.progress import Reporter
from rl_training.runtime.validating.concerns import predictable
from rl_training.runtime.validating.policy_check import (
    REFERENCE_ROWS,
    LoggedRows,
    LoggedStarts,
    PolicyCheck,
    ReturnLimits,
)
from rl_training.runtime.validating.validation import Validation

DEFAULT_FRACTION = 0.1  # of the episodes are held out where a run has no environment to be evaluated in
_FEW_EPISODES = 10  # below this, parts of episodes are held out instead of whole ones
_FEWEST_ROWS = 10  # of an episode that is divided
_UNPREDICTABLE = (
    "the logged actions hardly follow from the observations (cloning is {cloning_distance:.1%} of the range away from them, "
    "the best constant {constant_distance:.1%}), as if they were random: a policy's distance to them says nothing"
)
_MAX_WARNINGS = 6
_MOST_TOLD = 400  # characters about the origin of the data; run.json has all
_MOST_BOUNDS = 12


@dataclass(frozen=True, eq=False)
class OfflineData:
    """The training data of an offline run, and its held-out data if any."""

    dataset: TransitionDataset
    train: RunData
    validation: Validation | None
    fingerprint: str

    def record(self) -> dict[str, Any]:
        """Return what is worth knowing of the data after the run, as plain values."""
        spaces, held_out = self.train.spaces, self.validation
        names = [spaces.action_name(column) for column in range(spaces.action_dim)]
        ends = zip(spaces.action_low.tolist(), spaces.action_high.tolist(), strict=True)
        bounds = {name: list(pair) for name, pair in zip(names, ends, strict=True)}
        rows = {} if held_out is None else {"held_out_rows": len(held_out)}
        known = {"fingerprint": self.dataset.fingerprint, "origin": self.dataset.origin}
        rewards = np.asarray(self.dataset.rewards[:])
        earned = {"reward_min": float(rewards.min()), "reward_max": float(rewards.max())}
        return {**known, **self.dataset.statistics(), **earned, "action_bounds": bounds, **rows}


def offline_data(
    config: RunConfig[Any],
    dataset: TransitionDataset | None,
    reporter: Reporter,
    stop_if_requested: Callable[[], None],
    *,
    checkpoint: Checkpoint | None = None,
) -> OfflineData:
    """Return the data of a run; report its origin, the doctor's findings and what is held out.

    For a run that continues from a `checkpoint` the data must be the same, and is processed as it was then.
    """
    fault_point("data:begin")
    if dataset is None:
        dataset = build_offline_dataset(config, stop_if_requested)
    if dataset.origin:
        reporter.note(f"data: {_in_short(dataset)}")
    _warn_about_findings(dataset, config, reporter)
    held_out: ValidationConfig | None = getattr(config.algo_kwargs, "validation", None)
    fingerprint = dataset.fingerprint
    train, held = RowView(dataset), None
    if held_out is None:
        train, held = _default_split(dataset) if config.env_id is None else (train, None)
    elif held_out.path is not None:
        other = load_file(held_out, config.algo_kwargs.max_dataset_bytes)
        fingerprint = _joint_fingerprint(dataset, other)
        held = RowView(other)
        if other.fingerprint == dataset.fingerprint:
            reporter.warn("the validation data is the training data itself, so its losses are meaningless")
    elif held_out.fraction:
        train, held = split_views(dataset, held_out.fraction, held_out.seed)
    known = None if checkpoint is None else _as_before(checkpoint, fingerprint)
    spaces = _joint_spaces(dataset, held)
    data = process_offline_dataset(train, config, spaces=spaces, like=known)
    validation = None
    if held is not None:
        other_data = process_offline_dataset(held, config, like=data)
        rows = VALIDATION_ROWS if held_out is None else held_out.max_rows
        reference = LoggedRows.of(data, REFERENCE_ROWS)
        limits = ReturnLimits.of(train)
        starts = LoggedStarts.of(held, data.transforms, limits.allowed)
        check = PolicyCheck(LoggedRows.of(other_data, rows, held), limits, starts, reference)
        validation = Validation(other_data, config.algo_kwargs.batch_size, rows, data, check)
        if not predictable(check.references):
            reporter.note(_UNPREDICTABLE.format(**check.references))
    _report_bounds(dataset, data.spaces, config, reporter)
    _note_held_out(config, reporter, held, train)
    return OfflineData(dataset, data, validation, fingerprint)


def _in_short(dataset: TransitionDataset) -> str:
    """How much data there is, and what is unusual about how it was read."""
    size = f"{len(dataset):,} transitions in {Count(len(dataset.episode_spans[0]), 'episode', 'episodes')}"
    told = dataset.origin_in_short or dataset.origin
    return f"{size}; {shorten(told, _MOST_TOLD, placeholder=' ...')}"


def _as_before(checkpoint: Checkpoint, fingerprint: str) -> Fitted:
    """The spaces and transforms of a checkpoint; they, not later defaults or environments, decide what its policy means."""
    if (then := checkpoint.state["dataset_fingerprint"]) != fingerprint:
        raise DatasetError(f"the data has changed since the checkpoint: {fingerprint} now, {then} then")
    return fitted_before(checkpoint)


def fitted_before(checkpoint: Checkpoint) -> Fitted:
    """Return the spaces and transforms that a checkpoint was written with."""
    try:
        return Fitted(Spaces.from_json(checkpoint.state["spaces"]), Transforms.from_tensors(checkpoint.tensors))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{checkpoint.path}: does not describe a run of this package: {error}") from error


def _default_split(dataset: TransitionDataset) -> tuple[RowView, RowView | None]:
    """A tenth of the episodes held out; of few episodes the last tenth of each, and of a handful of rows nothing."""
    starts, lengths = dataset.episode_spans
    if len(starts) >= _FEW_EPISODES:
        return split_views(dataset, DEFAULT_FRACTION)
    long = lengths >= _FEWEST_ROWS
    if not long.any():
        return split_views(dataset, DEFAULT_FRACTION) if len(starts) > 1 else (RowView(dataset), None)
    timeouts = np.array(dataset.timeouts)
    timeouts[(starts + np.ceil(lengths * (1.0 - DEFAULT_FRACTION)).astype(np.int64) - 1)[long]] = True
    cut = replace(dataset, timeouts=timeouts, cut_from=None)
    numbers = np.arange(len(starts)) + np.cumsum(long) - long  # of the first part of each episode, once the long ones are two
    return RowView(cut, numbers), RowView(cut, numbers[long] + 1)


def _best(found: TransitionDataset, top: float) -> TransitionDataset:
    """Return the share of the episodes with the highest returns, with a word on it where these are those of one length."""
    kept, why = filter_view(found, top=top).copy(), ranked_by_length(found) if top < 1.0 else ""
    if not why:
        return kept
    in_short = kept.origin_in_short and f"{kept.origin_in_short}; {why}"
    return replace(kept, origin=f"{kept.origin}; {why}", origin_in_short=in_short)


def build_offline_dataset(config: RunConfig[Any], check: Callable[[], None] = lambda: None) -> TransitionDataset:
    """Return the dataset that a config describes: a recipe, a file, or a weighted mixture of them."""
    parts = config.algo_kwargs.dataset
    if not parts:
        raise ConfigError("there is no dataset: set algo_kwargs.dataset (files, or a recipe `kind`), or pass one (--dataset)")
    datasets, limit = [], config.algo_kwargs.max_dataset_bytes
    for part in parts:
        if part.kind is None:
            found = load_file(part, limit)
        elif config.environment is None:
            raise ConfigError(f"the recipe `{part.kind}` needs an environment: set env_id, or give a file as dataset.path")
        else:
            found = make_dataset(config.environment, part, check)
        datasets.append(found if part.top is None else _best(found, part.top))
    if len(datasets) == 1:
        return datasets[0]
    check_size("the mixture", 2 * sum(values.nbytes for d in datasets for values in d.fields().values()), limit)
    weights = None if parts[0].weight is None else [part.weight for part in parts]
    return mix_datasets(datasets, weights, seed=parts[0].seed)


def files_fingerprint(config: RunConfig[Any]) -> str | None:
    """Return the fingerprint of the data in files that a config describes, which are all read; None if there are no files.

    It is the one that checkpoints have. Recipes are not made for it, so data that is in part made by one has none.
    """
    parts = getattr(config.algo_kwargs, "dataset", ())
    if not parts or any(part.kind is not None for part in parts):
        return None
    dataset, held_out = build_offline_dataset(config), getattr(config.algo_kwargs, "validation", None)
    if held_out is None or held_out.path is None:
        return dataset.fingerprint
    return _joint_fingerprint(dataset, load_file(held_out, config.algo_kwargs.max_dataset_bytes))


def _joint_fingerprint(dataset: TransitionDataset, held_out: TransitionDataset) -> str:
    """The fingerprint of data that is held out in files of its own."""
    return hashlib.sha256(f"{dataset.fingerprint} validation {held_out.fingerprint}".encode()).hexdigest()


def load_file(file: FileConfig, max_bytes: int | None) -> TransitionDataset:
    """Return the dataset of a block of files, read with its settings."""
    return read_dataset(*file.files, file.read_options(max_bytes)).dataset()


def process_offline_dataset(
    data: TransitionDataset | RowView,
    config: RunConfig[Any],
    *,
    like: RunData | Fitted | None = None,
    spaces: Spaces | None = None,
) -> RunData:
    """Return the data normalised and packed; actions are scaled to [-1, 1] by the environment's bounds, or the recorded ones.

    Rows have the optional fields that the algorithm needs. With `like`, the spaces and transforms of data processed before
    are used; `spaces` replaces the dataset's own.
    """
    view = data if isinstance(data, RowView) else RowView(data)
    chosen = _spaces(view.dataset, config, spaces or view.dataset.spaces) if like is None else like.spaces
    return process_dataset(view, config.algo_kwargs, chosen, needs=get_spec(config.algo).needs, like=like)


def _spaces(dataset: TransitionDataset, config: RunConfig[Any], own: Spaces) -> Spaces:
    """The environment's spaces with the dataset's names, or the dataset's own where there is no environment."""
    if config.environment is None:
        return own
    spaces = infer_env_spaces(config.environment)
    if (spaces.observation_dim, spaces.action_dim) != (dataset.observation_dim, dataset.action_dim):
        raise DatasetError(
            f"the data has {dataset.observation_dim} observations and {dataset.action_dim} actions, "
            f"{config.env_id} has {spaces.observation_dim} and {spaces.action_dim}; check env_id and the dataset"
        )
    return replace(spaces, observation_names=own.observation_names, action_names=own.action_names)


def _joint_spaces(dataset: TransitionDataset, held: RowView | None) -> Spaces:
    """The dataset's spaces; where no bounds are recorded, they also cover the held-out data."""
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


def _warn_about_findings(dataset: TransitionDataset, config: RunConfig[Any], reporter: Reporter) -> None:
    """Warn about what the doctor's cheap checks find."""
    env = None if config.environment is None else environment_spaces(config.environment)
    found = quick_findings(dataset, env)
    for finding in found[:_MAX_WARNINGS]:
        reporter.warn(f"data: {finding}")
    if len(found) > _MAX_WARNINGS:
        reporter.warn(f"data: {len(found) - _MAX_WARNINGS} more findings; see `rl-training data doctor`")


def _report_bounds(dataset: TransitionDataset, spaces: Spaces, config: RunConfig[Any], reporter: Reporter) -> None:
    """Print the bounds of the actions and where they come from; warn about columns that are held."""
    source = "the recorded range" if dataset.action_low is None else "as stated with the data"
    if config.env_id is not None:
        source = f"those of {config.env_id}"
    labels = [spaces.action_name(column) for column in range(spaces.action_dim)]
    ranges = list(zip(labels, spaces.action_low, spaces.action_high, strict=True))
    shown = ", ".join(f"{name} {low:.6g} to {high:.6g}" for name, low, high in ranges[:_MOST_BOUNDS] if low < high)
    more = f" and {len(ranges) - _MOST_BOUNDS} more" if len(ranges) > _MOST_BOUNDS else ""
    reporter.note(f"action bounds ({source}): {shown}{more}")
    for name, low, high in ranges:
        if low == high:
            reporter.warn(f"`{name}` is {low:.6g} in every row, so every command holds it there")


def _note_held_out(config: RunConfig[Any], reporter: Reporter, held: RowView | None, train: RowView) -> None:
    if held is not None:
        reporter.note(
            f"held out: {len(held):,} rows, {len(train):,} to learn from; figures on held-out rows are `validation/...`"
        )
    if config.final_env_id is None:
        rest = (
            "the policy is compared with held-out actions" if held is not None else "and nothing is held out to check it on"
        )
        reporter.note(f"no environment (env_id is null): returns cannot be measured, {rest}")
