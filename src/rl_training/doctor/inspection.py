"""What is in a dataset, in numbers: the summary behind `rl-training data inspect`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_blocks import blocks, column_moments, column_range
from rl_training.data.spaces import Names

BINS = 40
_MOST_COLUMNS = 64  # of observations, in charts
_TREND_POINTS = 200


def summarize_dataset(dataset: TransitionDataset) -> dict[str, Any]:
    """Return rows, episodes, lengths, returns, rewards, ends and the coverage of every column as plain values."""
    starts, lengths = dataset.episode_spans
    returns = dataset.logged_returns()
    last = starts + lengths - 1
    ended = np.asarray(dataset.terminals[last])
    return {
        "rows": len(dataset),
        "episodes": len(starts),
        "observation_dim": dataset.observation_dim,
        "action_dim": dataset.action_dim,
        "optional_fields": [name for name in ("next_actions", "returns_to_go") if getattr(dataset, name) is not None],
        "ends": {
            "true_ends": int(ended.sum()),
            "time_limits": int((~ended).sum()),
            "true_end_lengths": _histogram(lengths[ended]),
            "time_limit_lengths": _histogram(lengths[~ended]),
        },
        "lengths": _described(lengths),
        "returns": _described(returns),
        "rewards_per_step": _described(dataset.episode_returns() / lengths),
        "return_trend": _trend(returns),
        "rewards": _described(np.asarray(dataset.rewards)),
        "actions": _labelled(_columns(dataset.actions, *_bounds(dataset)), dataset.action_names, "action"),
        "observations": _labelled(
            _columns(dataset.observations[:, :_MOST_COLUMNS]), dataset.observation_names, "observation"
        ),
    }


def _labelled(columns: list[dict[str, Any]], names: Names | None, kind: str) -> list[dict[str, Any]]:
    """The columns with their names, and labels for people."""
    known = (None,) * len(columns) if names is None else names[: len(columns)]
    labels = [f"{kind} {number}" if name is None else f"{name} ({kind} {number})" for number, name in enumerate(known)]
    return [{"name": name, "label": label, **c} for name, label, c in zip(known, labels, columns, strict=True)]


def _bounds(dataset: TransitionDataset) -> tuple[NDArray[Any], NDArray[Any]]:
    return dataset.spaces.action_low, dataset.spaces.action_high


def _described(values: NDArray[Any]) -> dict[str, Any]:
    quantiles = np.quantile(values, (0.0, 0.25, 0.5, 0.75, 1.0))
    names = ("min", "lower_quartile", "median", "upper_quartile", "max")
    return {
        **{name: float(value) for name, value in zip(names, quantiles, strict=True)},
        "mean": float(values.mean(dtype=np.float64)),
        "std": float(values.std(dtype=np.float64)),
        "histogram": _histogram(values),
    }


def _histogram(values: NDArray[Any]) -> dict[str, Any]:
    """Counts in equal bins; integers with a small range get a bin each."""
    if not len(values):
        return {"counts": [], "edges": []}
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "iu" and high - low < BINS:
        edges = np.arange(low, high + 2) - 0.5
    elif low == high:
        edges = np.array([low - 0.5, high + 0.5])
    else:
        edges = np.linspace(low, high, BINS + 1)
    counts, _ = np.histogram(np.asarray(values, dtype=np.float64), bins=edges)
    return {"counts": counts.tolist(), "edges": edges.tolist()}


def _columns(values: NDArray[Any], low: NDArray[Any] | None = None, high: NDArray[Any] | None = None) -> list[dict[str, Any]]:
    """Range, moments and histogram of each column; with bounds also their coverage."""
    smallest, largest = column_range(values)
    mean, std = column_moments(values)
    first, last = (smallest, largest) if low is None or high is None else (low, high)
    counts = _column_counts(values, first.astype(np.float64), last.astype(np.float64))
    result = []
    for column in range(values.shape[1]):
        entry: dict[str, Any] = {
            "min": float(smallest[column]),
            "max": float(largest[column]),
            "mean": float(mean[column]),
            "std": float(std[column]),
            "histogram": {
                "counts": counts[column].tolist(),
                "edges": np.linspace(first[column], last[column], BINS + 1).tolist(),
            },
        }
        if low is not None and high is not None:
            entry |= {"low": float(low[column]), "high": float(high[column])}
            entry["coverage"] = float((counts[column] > 0).mean())
            entry["at_bounds"] = float(np.isclose(np.abs(_unit(values[:, column], low[column], high[column])), 1.0).mean())
        result.append(entry)
    return result


def _unit(values: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    """Values of a column between -1 and 1 by its bounds; 1 where it is held at one value."""
    return (values - (high + low) / 2.0) / ((high - low) / 2.0) if high > low else np.ones_like(values)


def _column_counts(values: NDArray[Any], low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.int64]:
    """Counts of each column in equal bins from low to high, (columns, bins); values outside count in the edge bins."""
    width = np.where(high > low, high - low, 1.0)
    counts = np.zeros((values.shape[1], BINS), dtype=np.int64)
    for part in blocks(len(values)):
        bins = np.clip((values[part] - low) / width * BINS, 0, BINS - 1).astype(np.int64)
        for column in range(values.shape[1]):
            counts[column] += np.bincount(bins[:, column], minlength=BINS)
    return counts


def _trend(returns: NDArray[np.float64]) -> list[float]:
    """The returns in the order of the episodes, averaged down to a few points."""
    parts = np.array_split(returns, min(_TREND_POINTS, len(returns)))
    return [float(part.mean()) for part in parts]
