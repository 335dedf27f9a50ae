"""Mixtures of several datasets, by whole episodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training import rng
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_view import RowView
from rl_training.data.spaces import common_names
from rl_training.errors import ConfigError, DatasetError


def mix_datasets(
    datasets: Sequence[TransitionDataset], weights: Sequence[float] | None = None, *, seed: int = 0
) -> TransitionDataset:
    """Return one dataset of whole episodes; every join is an episode boundary.

    Without `weights` all episodes of all datasets are kept. With them, dataset i contributes the share w_i / sum(w) of the
    rows (to within an episode): as many rows as possible are kept, episodes chosen by `seed`. An optional field is
    kept only if every dataset has it.
    """
    copies = [view.copy() for view in mix_views(datasets, weights, seed=seed)]
    values = {name: np.concatenate([getattr(d, name) for d in copies]) for name in copies[0].fields()}
    first = copies[0]
    mixed = TransitionDataset.from_dict(
        values,
        action_low=first.action_low,
        action_high=first.action_high,
        observation_names=first.observation_names,
        action_names=first.action_names,
        source="mixture",
        find_cuts=False,
    )
    return replace(mixed, cut_from=_cut_from(copies), unseen_rewards=_unseen_rewards(copies))


def _unseen_rewards(datasets: Sequence[TransitionDataset]) -> NDArray[np.float64] | None:
    """The rewards of steps that were left out of any part; None if there are none."""
    if all(dataset.unseen_rewards is None for dataset in datasets):
        return None
    return np.concatenate([np.zeros(len(d)) if d.unseen_rewards is None else d.unseen_rewards for d in datasets])


def _cut_from(datasets: Sequence[TransitionDataset]) -> NDArray[np.int64] | None:
    """The episode that each one of a mixture is a part of; None if all are whole."""
    if all(dataset.cut_from is None for dataset in datasets):
        return None
    owners, first = list[NDArray[np.int64]](), 0
    for dataset in datasets:
        whole = np.arange(len(dataset.episode_spans[0])) if dataset.cut_from is None else dataset.cut_from
        owners.append(whole + first)
        first += int(whole.max()) + 1
    return np.concatenate(owners)


def mix_views(
    datasets: Sequence[TransitionDataset], weights: Sequence[float] | None = None, *, seed: int = 0
) -> list[RowView]:
    """Return views of what each dataset contributes to a mixture, with the fields and bounds that all of them share."""
    if not datasets:
        raise DatasetError("there is nothing to mix: pass at least one dataset")
    first = datasets[0]
    for position, other in enumerate(datasets[1:], start=1):
        if (other.observation_dim, other.action_dim) != (first.observation_dim, first.action_dim):
            raise DatasetError(
                f"datasets 0 and {position} differ in shape: observations {first.observation_dim} and "
                f"{other.observation_dim}, actions {first.action_dim} and {other.action_dim}"
            )
    parts = [f"dataset {position}" for position in range(len(datasets))]
    kept: dict[str, Any] = {
        "observation_names": common_names([d.observation_names for d in datasets], "observations", parts),
        "action_names": common_names([d.action_names for d in datasets], "actions", parts),
    }
    low = np.min([d.spaces.action_low for d in datasets], axis=0)
    high = np.max([d.spaces.action_high for d in datasets], axis=0)
    dropped = [name for name in ("next_actions", "returns_to_go") if any(getattr(d, name) is None for d in datasets)]
    kept |= dict.fromkeys(dropped)
    uniform = [replace(d.with_bounds(low, high), **kept) for d in datasets]
    chosen = [None] * len(datasets) if weights is None else _episodes(datasets, weights, seed)
    views = [RowView(d, episodes) for d, episodes in zip(uniform, chosen, strict=True)]
    return [view for view in views if len(view)]


def _episodes(datasets: Sequence[TransitionDataset], weights: Sequence[float], seed: int) -> list[NDArray[np.intp]]:
    """The episodes each dataset contributes, in their original order."""
    share = np.asarray(weights, dtype=np.float64)
    if len(share) != len(datasets) or not np.isfinite(share).all() or (share < 0).any() or share.sum() <= 0:
        raise ConfigError(f"weights must be {len(datasets)} numbers >= 0, not all zero, got {list(weights)}")
    share = share / share.sum()
    total = min(len(d) / w for d, w in zip(datasets, share, strict=True) if w > 0)
    kept = []
    for position, (dataset, part) in enumerate(zip(datasets, share, strict=True)):
        lengths = dataset.episode_spans[1]
        order = np.argsort(rng.bits([seed], f"mix/{position}", 0, (len(lengths),))[0].numpy(), kind="stable")
        count = int(np.searchsorted(np.cumsum(lengths[order]), round(total * part), side="right")) if part > 0 else 0
        kept.append(np.sort(order[: max(count, 1 if part > 0 else 0)]))
    return kept
