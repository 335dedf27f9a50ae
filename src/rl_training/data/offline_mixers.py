"""Several datasets into one, by whole episodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training import rng
from rl_training.data.offline_dataset import OPTIONAL, REQUIRED, TransitionDataset
from rl_training.errors import DatasetError


def mix_datasets(
    datasets: Sequence[TransitionDataset], weights: Sequence[float] | None = None, *, seed: int = 0
) -> TransitionDataset:
    """Return one dataset of whole episodes; every join is an episode boundary.

    Without `weights` all episodes of all datasets are kept. With them, dataset i contributes the share w_i / sum(w) of the
    rows (to within an episode): as many rows as possible are kept, episodes chosen by `seed`. An optional field survives
    when every dataset has it.
    """
    if not datasets:
        raise DatasetError("there is nothing to mix: give at least one dataset")
    first = datasets[0]
    for position, other in enumerate(datasets[1:], start=1):
        if (other.observation_dim, other.action_dim) != (first.observation_dim, first.action_dim):
            raise DatasetError(
                f"datasets 0 and {position} differ in shape: observations {first.observation_dim} and "
                f"{other.observation_dim}, actions {first.action_dim} and {other.action_dim}"
            )
    kept = [np.arange(len(dataset)) for dataset in datasets] if weights is None else _rows(datasets, weights, seed)
    names = [name for name in (*REQUIRED, *OPTIONAL) if all(getattr(d, name) is not None for d in datasets)]
    values: dict[str, NDArray[Any]] = {
        name: np.concatenate([getattr(d, name)[rows] for d, rows in zip(datasets, kept, strict=True)]) for name in names
    }
    ends = np.cumsum([len(rows) for rows in kept if len(rows)]) - 1
    values["timeouts"][ends] |= ~values["terminals"][ends]  # a dataset may stop in the middle of an episode
    low = np.min([d.spaces.action_low for d in datasets], axis=0)
    high = np.max([d.spaces.action_high for d in datasets], axis=0)
    return TransitionDataset.from_dict(values, action_low=low, action_high=high, source="mixture")


def _rows(datasets: Sequence[TransitionDataset], weights: Sequence[float], seed: int) -> list[NDArray[np.intp]]:
    """The rows each dataset contributes, whole episodes in their old order."""
    share = np.asarray(weights, dtype=np.float64)
    if len(share) != len(datasets) or not np.isfinite(share).all() or (share < 0).any() or share.sum() <= 0:
        raise DatasetError(f"weights must be {len(datasets)} numbers >= 0, not all zero, got {list(weights)}")
    share = share / share.sum()
    total = min(len(d) / w for d, w in zip(datasets, share, strict=True) if w > 0)
    kept = []
    for position, (dataset, part) in enumerate(zip(datasets, share, strict=True)):
        episodes = [episode.rows for episode in dataset.episodes()]
        order = np.argsort(rng.bits([seed], f"mix/{position}", 0, (len(episodes),))[0].numpy(), kind="stable")
        sizes = np.cumsum([episodes[i].stop - episodes[i].start for i in order])
        count = int(np.searchsorted(sizes, round(total * part), side="right")) if part > 0 else 0
        chosen = sorted(order[: max(count, 1 if part > 0 else 0)])
        pieces = [np.arange(episodes[i].start, episodes[i].stop) for i in chosen]
        kept.append(np.concatenate(pieces) if pieces else np.empty(0, dtype=np.intp))
    return kept
