"""Splits, filters and transforms of datasets by whole episodes; the same input always gives the same output."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training import rng
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.returns import Tail, compute_returns_to_go
from rl_training.data.row_view import RowView
from rl_training.errors import ConfigError, DatasetError

_FEWEST_RANKED, _UNEQUAL, _MOSTLY = 5, 0.2, 0.8  # cut episodes; range of lengths; correlation of ranks


def held_out_episodes(dataset: TransitionDataset, fraction: float, seed: int = 0) -> NDArray[np.intp]:
    """Return the indices of a share of the episodes, at least one and never all, chosen by `seed`.

    Parts of one episode, which gaps or bad rows cut, stay together: rows shortly after those that were learned from are no
    test. Where the share is less than one whole episode, as in a log that is a single one, parts are held out by themselves.
    """
    if not 0.0 < fraction < 1.0:
        raise ConfigError(f"fraction = {fraction!r} is not legal: must be a number > 0 and < 1")
    count = len(dataset.episode_spans[0])
    if count < 2:
        raise DatasetError("there is only one episode, so none can be held out; mark the ends of episodes, or add data")
    owners = _owners(dataset, fraction)
    whole = int(owners.max()) + 1
    order = np.argsort(rng.bits([seed], "split", 0, (whole,))[0].numpy(), kind="stable")
    return np.flatnonzero(np.isin(owners, order[: min(max(1, round(fraction * whole)), whole - 1)]))


def _owners(dataset: TransitionDataset, fraction: float) -> NDArray[np.intp]:
    """A number for each episode, the same for the parts of one, unless the share is less than one whole episode."""
    alone = np.arange(len(dataset.episode_spans[0]))
    if dataset.cut_from is None:
        return alone
    owners = np.unique(dataset.cut_from, return_inverse=True)[1]
    whole = int(owners.max()) + 1
    return owners if whole > 1 and round(fraction * whole) >= 1 else alone


def split_views(dataset: TransitionDataset, fraction: float, seed: int = 0) -> tuple[RowView, RowView]:
    """Return views of the remaining and of the held-out episodes."""
    held = held_out_episodes(dataset, fraction, seed)
    rest = np.setdiff1d(np.arange(len(dataset.episode_spans[0])), held)
    return RowView(dataset, rest), RowView(dataset, held)


def split_dataset(
    dataset: TransitionDataset, fraction: float, *, seed: int = 0
) -> tuple[TransitionDataset, TransitionDataset]:
    """Return two datasets: the remaining episodes, and a held-out share chosen by `seed`; no episode is in both."""
    rest, held = split_views(dataset, fraction, seed)
    return rest.copy(), held.copy()


def filter_dataset(dataset: TransitionDataset, **conditions: Any) -> TransitionDataset:
    """Return the episodes that pass every condition of `filter_view` as a dataset of their own."""
    return filter_view(dataset, **conditions).copy()


def ranked_by_length(dataset: TransitionDataset) -> str:
    """Return why the highest returns are mostly those of the shortest or longest episodes; empty if they are not.

    Episodes that truly end have the length that they took. Of those that were cut, a return tells how long they were logged.
    """
    starts, lengths = dataset.episode_spans
    cut = ~np.asarray(dataset.terminals[starts + lengths - 1])
    own = lengths[cut]
    if 2 * cut.sum() < len(cut) or len(own) < _FEWEST_RANKED or np.ptp(own) < _UNEQUAL * own.max():
        return ""
    places = [np.unique(values[cut], return_inverse=True)[1] for values in (dataset.logged_returns(), lengths)]
    if np.ptp(places[0]) == 0 or abs(likeness := float(np.asarray(np.corrcoef(places))[0, 1])) < _MOSTLY:
        return ""
    first = "shortest" if likeness < 0.0 else "longest"
    why = (
        f"{len(own)} of {len(cut)} episodes were cut, and their returns go by their lengths ({own.min()} to {own.max()} rows)"
    )
    return (
        f"the episodes with the highest returns are mostly the {first}: {why}; "
        "keep episodes of about one length first (`rl-training data filter --min-length N`), and the best of these then"
    )


def filter_view(
    dataset: TransitionDataset,
    *,
    top: float | None = None,
    min_return: float | None = None,
    max_return: float | None = None,
    min_length: int | None = None,
    unique: bool = False,
) -> RowView:
    """Return a view of the episodes that pass every condition, in their original order.

    `top` keeps the share of episodes with the highest returns (0.1: the best tenth, at least one); `unique` keeps the first
    of equal episodes.
    """
    returns, lengths = dataset.logged_returns(), dataset.episode_spans[1]
    keep = np.ones(len(returns), dtype=bool)
    if top is not None:
        if not 0.0 < top <= 1.0:
            raise ConfigError(f"top = {top!r} is not legal: must be a number > 0 and <= 1, or up to 100 %")
        best = np.argsort(-returns, kind="stable")[: max(1, round(top * len(returns)))]
        keep &= np.isin(np.arange(len(returns)), best)
    if min_return is not None:
        keep &= returns >= min_return
    if max_return is not None:
        keep &= returns <= max_return
    if min_length is not None:
        keep &= lengths >= min_length
    if unique:
        keep &= _first_of_equals(dataset)
    if not keep.any():
        seen = f"returns are {returns.min():.4g} to {returns.max():.4g}, lengths {lengths.min()} to {lengths.max()}"
        raise DatasetError(f"no episode passes: {seen}")
    return RowView(dataset, np.flatnonzero(keep))


def episode_digests(dataset: TransitionDataset) -> list[bytes]:
    """Return a digest of each episode: equal exactly for equal rows."""
    result = []
    for episode in dataset.episodes():
        digest = hashlib.blake2b(digest_size=16)
        for values in dataset.fields().values():
            digest.update(np.ascontiguousarray(values[episode.rows]).data)
        result.append(digest.digest())
    return result


def _first_of_equals(dataset: TransitionDataset) -> NDArray[np.bool_]:
    seen: set[bytes] = set()
    digests = episode_digests(dataset)
    return np.array([digest not in seen and not seen.add(digest) for digest in digests])  # type: ignore[func-returns-value]


def transform_dataset(
    dataset: TransitionDataset,
    *,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    reward_clip: Sequence[float] | None = None,
    normalize_actions: bool = False,
    next_actions: bool = False,
    gamma: float | None = None,
    tail: Tail = "last_penalty",
) -> TransitionDataset:
    """Return a copy with rewards `clip(scale * r + shift)` and, on request, actions mapped to [-1, 1] by their bounds.

    `next_actions` are mapped like the actions; if requested and missing, they are taken from the following row.
    `returns_to_go` is recomputed from the new rewards with `gamma` and `tail`, never carried over: a dataset that has it
    needs `gamma` if its rewards change.
    """
    low, high = (-np.inf, np.inf) if reward_clip is None else (float(reward_clip[0]), float(reward_clip[1]))
    unseen = dataset.unseen_rewards
    with np.errstate(over="ignore"):
        rewards = np.clip(dataset.rewards * reward_scale + reward_shift, low, high).astype(dataset.rewards.dtype)
        if unseen is not None:  # those of 0 stand for no step
            unseen = np.where(unseen != 0.0, np.clip(unseen * reward_scale + reward_shift, low, high), 0.0)
    if not np.isfinite(rewards).all():
        raise DatasetError("rewards overflow to inf once transformed; check reward_scale")
    changed = replace(
        dataset, rewards=rewards, unseen_rewards=unseen, records=None, timeouts=dataset.episode_ends & ~dataset.terminals
    )
    if dataset.returns_to_go is not None and gamma is None and not np.array_equal(rewards, dataset.rewards):
        raise ConfigError("the dataset holds returns_to_go, which belong to the old rewards: pass gamma to recompute them")
    if next_actions and dataset.next_actions is None:
        following = np.concatenate((dataset.actions[1:], dataset.actions[-1:]))
        changed = replace(changed, next_actions=np.where(dataset.episode_ends[:, None], dataset.actions, following))
    if normalize_actions:
        changed = _with_normalized_actions(changed)
    if gamma is not None:
        returns = compute_returns_to_go(changed.rewards, changed.terminals, changed.timeouts, gamma, tail)
        changed = replace(changed, returns_to_go=returns)
    done = {"reward_scale": reward_scale, "reward_shift": reward_shift, "reward_clip": reward_clip, "gamma": gamma}
    done |= {"normalize_actions": normalize_actions, "next_actions": next_actions}
    listed = ", ".join(
        f"{name} {value}" for name, value in done.items() if value not in (None, False, 1.0, 0.0) or value is True
    )
    added = f"; transformed: {listed or 'nothing'}"
    in_short = changed.origin_in_short and changed.origin_in_short + added
    return replace(changed, origin=changed.origin + added, origin_in_short=in_short)


def _with_normalized_actions(dataset: TransitionDataset) -> TransitionDataset:
    spaces = dataset.spaces
    one = spaces.free.astype(np.float32)  # held columns become 0
    changed = replace(dataset, actions=spaces.unit_actions(dataset.actions), action_low=-one, action_high=one)
    if dataset.next_actions is None:
        return changed
    return replace(changed, next_actions=spaces.unit_actions(dataset.next_actions))
