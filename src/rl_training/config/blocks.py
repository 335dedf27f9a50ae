"""Blocks of settings that algorithms share: rewards, files, datasets, collection; free of torch."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from rl_training.config.base import FlagOrAuto, Seed, SingleModel, StrictModel
from rl_training.config.columns import ColumnMap
from rl_training.remote.address import is_remote

VALIDATION_ROWS = 25_600  # held-out rows scored per evaluation

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_bytes(value: Any) -> Any:
    """Return the bytes of a size such as `1.5GiB`; any other type is left to the schema."""
    if not isinstance(value, str):
        return value
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)\s*", value, re.IGNORECASE)
    if parts is None or parts[2].upper() not in _UNITS:
        raise ValueError("must be a number of bytes, such as 500MB or 2GiB")
    return int(float(parts[1]) * _UNITS[parts[2].upper()])


def parse_share(value: Any) -> Any:
    """Return the share that text such as `10%` denotes; any other type is left to the schema."""
    if not isinstance(value, str):
        return value
    try:
        number = float(value.strip().removesuffix("%"))
    except ValueError:
        raise ValueError("must be a share, such as 10%") from None
    return number / 100.0 if value.strip().endswith("%") else number


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _as_paths(value: Any) -> Any:
    """A path or a list of paths as text; an empty one would mean the current folder."""
    if value is None:
        return None
    if _is_path(value) and os.fspath(value):
        return os.fspath(value)
    if isinstance(value, list | tuple) and value and all(_is_path(one) and os.fspath(one) for one in value):
        return tuple(os.fspath(one) for one in value)
    raise ValueError("must be a file, a folder, a glob such as 'logs/*.csv', or a list of these")


def _as_text(value: Any) -> Any:
    return os.fspath(value) if _is_path(value) else value


def _absolute(path: str) -> str:
    return path if path.startswith("minari:") or is_remote(path) else os.path.abspath(os.path.expanduser(path))


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


_PLAIN = {"scale": 1.0, "shift": 0.0, "clip": None}  # rewards as they are


class RewardConfig(SingleModel):
    """How rewards are transformed: r <- clip(scale * r + shift)."""

    scale: float = 1.0
    """Factor."""
    shift: float = 0.0
    """Offset, added after the factor."""
    clip: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Lowest and highest reward afterwards; null is no clipping."""
    normalize: FlagOrAuto = "auto"
    """`true`: first scale so that the episode returns in the data span 1000, as published for locomotion; `auto`: unless
    another key is set, scale so that most rewards in the data have a standard deviation of 1; without data only where
    rewards are far from ordinary size."""

    @model_validator(mode="before")
    @classmethod
    def _given_is_set(cls, values: Any) -> Any:
        """A key that is given counts as set also with the value it has by default: `scale: 1` leaves rewards as they are."""
        if isinstance(values, Mapping) and values and all(_PLAIN.get(key, ...) == value for key, value in values.items()):
            return {**values, "normalize": False}
        return values

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError("clip must be [lowest, highest]")
        return self

    @property
    def is_automatic(self) -> bool:
        """Whether the scale is fitted on the data: `auto`, and nothing else is set."""
        return self.normalize == "auto" and all(getattr(self, name) == value for name, value in _PLAIN.items())


FileFormat = Literal["auto", "rl_training", "run", "npz", "minari", "d3rlpy", "hdf5", "parquet", "csv"]
Bound = Annotated[tuple[float, ...], Field(strict=False, min_length=1), BeforeValidator(_as_tuple)]
Bytes = Annotated[int, Field(ge=0), BeforeValidator(parse_bytes)]


class ReadConfig(StrictModel):
    """How to read a file where its content does not say; each setting fixes some finding of the doctor."""

    columns: ColumnMap | None = None
    """Column map of a table, such as {observations: 'obs_*', actions: [u], reward: r}; inline or in a file."""
    ends: Literal["auto", "timeouts"] = "auto"
    """`timeouts`: every marked end is a time limit."""
    time_limit: int = Field(0, ge=0)
    """True ends of episodes of exactly this many rows are time limits; 0 takes ends as they are marked."""
    cut_gaps: bool = False
    """Cut episodes wherever the time, or a clock among the observations, skips samples."""
    next_observations: Literal["auto", "following"] = "auto"
    """`following`: next observations are taken from the following row, even if the file has its own."""
    reward_lag: int = Field(0, ge=-100, le=100)
    """The reward of a row is stored this many rows later in its episode; rows without one are left out."""
    reward_lag_across: bool = False
    """Shift the whole column of rewards by `reward_lag`, across episodes too."""
    action_lag: int = Field(0, ge=-100, le=100)
    """The action of a row is stored this many rows later in its episode; rows without one are left out."""
    action_lag_across: bool = False
    """Shift the whole columns of actions by `action_lag`, across episodes too."""
    on_bad_rows: Literal["error", "drop"] = "error"
    """`drop`: leave out transitions with NaN or inf, and cut the episode there."""
    action_scale: float = Field(1.0, gt=0.0)
    """Factor that converts stored actions to their real unit."""
    action_low: Bound | None = None
    """Real lower bounds of the actions, such as -1,-1, where neither file nor environment records them; one number is that
    of every action."""
    action_high: Bound | None = None
    """Real upper bounds of the actions; one number is that of every action."""
    member: int | None = Field(None, ge=0)
    """Member of a run whose replay is read, from 0; by default all, one after the other."""

    @model_validator(mode="after")
    def _both_bounds(self) -> Self:
        if (self.action_low is None) != (self.action_high is None):
            raise ValueError("set both `action_low` and `action_high`, or neither")
        return self

    @property
    def changes_rows(self) -> bool:
        """Whether any setting changes rows, not only the bounds of the actions."""
        ends = (self.ends, self.time_limit, self.cut_gaps)
        lags = (self.reward_lag, self.action_lag)
        fixes = (*ends, self.next_observations, self.on_bad_rows, *lags, self.action_scale)
        return fixes != ("auto", 0, False, "auto", "error", 0, 0, 1.0)


class ReadOptions(ReadConfig):
    """The options of a reader: how to read, and how much memory the arrays may take."""

    max_bytes: Bytes | None = None
    """Memory limit for arrays, such as 2GiB; by default 80 % of the free memory."""


class FileConfig(ReadConfig):
    """Files of logged data, and how to read it where its content does not say."""

    path: Annotated[str | tuple[str, ...] | None, BeforeValidator(_as_paths)] = None
    """A file, a folder of episode files, a glob such as `logs/*.csv`, a run directory, `minari:ID`, an address such as
    `s3://bucket/logs`, or a list of these."""
    format: FileFormat = "auto"
    """Format of the files."""

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        """Return absolute paths, since a resume may start from another directory."""
        if path is None or isinstance(path, str):
            return path and _absolute(path)
        return tuple(_absolute(one) for one in path)

    @property
    def files(self) -> tuple[str | tuple[str, ...] | None, str]:
        """What is read, if anything, and its format."""
        return self.path, self.format

    def read_options(self, max_bytes: int | None) -> ReadOptions:
        """Return the options of the reader for this file."""
        return ReadOptions(**{name: getattr(self, name) for name in ReadConfig.model_fields}, max_bytes=max_bytes)


class DatasetConfig(FileConfig):
    """One source of data: a recipe (`kind`) made from the environment, files (`path`), or the replay of a run (`run`)."""

    kind: Literal["random", "scripted"] | None = None
    """Behaviour of the recipe."""
    run: Annotated[str, Field(min_length=1), BeforeValidator(_as_text), AfterValidator(_absolute)] | None = None
    """A run directory or checkpoint of a run that learned online; its replay is the data."""
    size: int = Field(100_000, ge=1, le=1_000_000_000)
    """Rows of the recipe."""
    seed: Seed = 0
    """Seed of the recipe, independent of the training seeds."""
    noise: float = Field(0.0, ge=0.0)
    """Action noise of a scripted behaviour, in units of half the action range."""
    weight: float | None = Field(None, ge=0.0)
    """Share of the rows in a mixture; without weights every row is kept."""
    top: Annotated[float, Field(gt=0.0, le=1.0), BeforeValidator(parse_share)] | None = None
    """Keep only the episodes with the highest returns: this share of them, such as `10%`; null keeps all."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.kind, self.path, self.run)) != 1:
            raise ValueError("set one of `kind` (a recipe), `path` (files) and `run` (the replay of a run)")
        return self

    @property
    def files(self) -> tuple[str | tuple[str, ...] | None, str]:
        """What is read, if anything, and its format."""
        return super().files if self.run is None else (self.run, "run")


class ValidationConfig(FileConfig):
    """Held-out data: a share of the episodes, or a file of its own (`path`)."""

    fraction: float | None = Field(None, ge=0.0, lt=1.0)
    """Share of the episodes that is never trained on; 0 holds out nothing."""
    seed: Seed = 0
    """Seed that selects the episodes, independent of the training seeds."""
    max_rows: int = Field(VALIDATION_ROWS, ge=1, le=10_000_000)
    """Most rows to score per evaluation, spread evenly over the held-out data."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.fraction is None) == (self.path is None):
            raise ValueError("set either `fraction` (a share of the episodes) or `path` (a file)")
        return self


def dataset_parts(value: Any) -> Any:
    """Return the parts of a dataset however it is written: a path, a block, a list of paths (one part), or a list of both."""
    if value is None:
        return []
    if _is_path(value):
        return [{"path": value}]
    if isinstance(value, Mapping | DatasetConfig):
        return [value]
    if not isinstance(value, list | tuple):
        return value
    if value and all(_is_path(one) for one in value):
        return [{"path": value}]
    return [{"path": one} if _is_path(one) else one for one in value]


EVEN_VARIANCE = 1.0 / 3.0  # of actions that are uniform over [-1, 1]
LEAST_NARROWNESS = 1e-6  # so that actions that hardly vary give finite weights


class AlgorithmKwargs(StrictModel):
    """Settings of every algorithm under `algo_kwargs`."""

    batch_size: int = Field(256, ge=1, le=1_000_000)
    """Transitions per gradient step and member."""

    def fitted(self, action_variance: Callable[[], float]) -> Self:
        """Return the settings with every `auto` replaced that depends on the logged actions.

        `action_variance` returns the mean variance of the actions in [-1, 1]: a third if they fill their range evenly.
        """
        del action_variance
        return self

    @property
    def round_length(self) -> int:
        """Gradient steps of one round of updates; offline each is a round."""
        return 1

    @property
    def reward_transform(self) -> RewardConfig:
        """How rewards are transformed; an algorithm that learns without rewards leaves them unchanged."""
        return RewardConfig(normalize=False)


def narrowness(action_variance: float) -> float:
    """Return the variance of the actions as a share of that of actions that fill their range evenly, at most 1."""
    return max(min(1.0, 3.0 * action_variance), LEAST_NARROWNESS)


class RewardKwargs(AlgorithmKwargs):
    """Settings of every algorithm that learns from rewards."""

    reward: RewardConfig = RewardConfig()
    """Reward transform."""

    @property
    def reward_transform(self) -> RewardConfig:
        """How rewards are transformed."""
        return self.reward


class OfflineKwargs(AlgorithmKwargs):
    """Data settings of the offline algorithms."""

    normalize_observations: FlagOrAuto = "auto"
    """Whiten observations by the mean and standard deviation of the data; `auto`: wherever there is data to fit it on."""
    dataset: Annotated[tuple[DatasetConfig, ...], Field(strict=False), BeforeValidator(dataset_parts)] = ()
    """Files (`logs/`, `logs/*.csv`, a list), a recipe, or a list of blocks of either."""
    max_dataset_bytes: Annotated[int, Field(ge=2**20), BeforeValidator(parse_bytes)] | None = None
    """Memory limit for data, such as `2GiB`; null is 80 % of the free memory. A larger dataset directory is streamed."""

    @field_validator("dataset")
    @classmethod
    def _all_weights_or_none(cls, parts: tuple[DatasetConfig, ...]) -> tuple[DatasetConfig, ...]:
        if len({part.weight is None for part in parts}) > 1:
            raise ValueError("set a `weight` for every part of a mixture, or for none")
        return parts


class PurelyOfflineKwargs(OfflineKwargs):
    """Settings of the algorithms that learn from a fixed dataset."""

    validation: ValidationConfig | None = None
    """Held-out data; null holds out a tenth of the episodes where there is no environment, and nothing otherwise."""


class CollectionConfig(StrictModel):
    """How fresh transitions are collected and learned from; steps are environment steps."""

    buffer_capacity: int = Field(1_000_000, ge=1, le=1_000_000_000)
    """Transitions kept per member; the oldest are overwritten."""
    learning_starts: int = Field(1_000, ge=0)
    """Environment steps with uniformly random actions, before the first update."""
    train_frequency: int = Field(1, ge=1)
    """Environment steps between two rounds of updates."""
    gradient_updates_per_step: int = Field(1, ge=1, le=10_000)
    """Gradient steps of one round."""


class OnlineKwargs(CollectionConfig, RewardKwargs):
    """Settings of the algorithms that learn in an environment."""

    @property
    def round_length(self) -> int:
        """Gradient steps of one round of updates."""
        return self.gradient_updates_per_step


def _without_data(reward: RewardConfig) -> RewardConfig:
    if reward.normalize is True:
        raise ValueError("`normalize` is fitted on a dataset, and an online run has none; use `scale`")
    return reward


class DatalessKwargs(OnlineKwargs):
    """Settings of the algorithms that learn in an environment alone; `auto` is by random steps in it before the run."""

    reward: Annotated[RewardConfig, AfterValidator(_without_data)] = RewardConfig()
    """Reward transform."""
    normalize_observations: FlagOrAuto = "auto"
    """Whiten observations by their mean and standard deviation in random steps before the run: all, none, or (`auto`)
    those far from ordinary size."""
