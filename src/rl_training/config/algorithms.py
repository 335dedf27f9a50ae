"""What may stand under `algo_kwargs`, one class per algorithm, and the blocks they share; importable without torch."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, field_validator, model_validator

from rl_training.data.columns import ColumnMap
from rl_training.knobs import (
    VALIDATION_ROWS,
    CalQLKnobs,
    CQLKnobs,
    IQLKnobs,
    IQLNetworkKnobs,
    REDQKnobs,
    REDQNetworkKnobs,
    RLPDKnobs,
    SACKnobs,
    SACNetworkKnobs,
    StrictModel,
    TD3BCKnobs,
    TD3NetworkKnobs,
    XQLKnobs,
    check_subset,
)

Seed = Annotated[int, Strict(), Field(ge=0, lt=2**63)]


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_bytes(value: Any) -> Any:
    """Return the bytes of a size such as `1.5GiB`; anything but text is left to the schema."""
    if not isinstance(value, str):
        return value
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)\s*", value, re.IGNORECASE)
    if parts is None or parts[2].upper() not in _UNITS:
        raise ValueError("must be a number of bytes, such as 500MB or 2GiB")
    return int(float(parts[1]) * _UNITS[parts[2].upper()])


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, int | float) and not isinstance(value, bool) else value


class RewardConfig(StrictModel):
    """How rewards are transformed: r <- clip(scale * r + shift)."""

    scale: float = 1.0
    """Factor."""
    shift: float = 0.0
    """Summand, after the factor."""
    clip: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Lowest and highest reward afterwards; null clips nothing."""
    normalize: bool = False
    """First scale so that the episode returns in the data span 1000."""

    @model_validator(mode="after")
    def _ordered(self) -> "RewardConfig":
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise ValueError("clip must be [lowest, highest]")
        return self


FileFormat = Literal["auto", "rl_training", "npz", "minari", "d3rlpy", "hdf5", "parquet", "csv"]
Bound = Annotated[tuple[float, ...], Field(strict=False, min_length=1), BeforeValidator(_as_tuple)]


class FileConfig(StrictModel):
    """A file of logged data, and how it is to be read where its content alone does not say."""

    path: str | None = None
    """File or directory to read, or `minari:ID`."""
    format: FileFormat = "auto"
    """Layout of the file."""
    columns: ColumnMap | None = None
    """Which columns of a table are what."""
    ends: Literal["auto", "timeouts"] = "auto"
    """`timeouts`: every marked end is a time limit."""
    next_observations: Literal["auto", "following"] = "auto"
    """`following`: next observations are made from the following row, whatever the file holds."""
    reward_lag: int = Field(0, ge=-100, le=100)
    """The reward of a row is stored this many rows later in its episode; rows without one are left out."""
    reward_lag_across: bool = False
    """The whole column of rewards is shifted by `reward_lag`, across episodes too."""
    on_bad_rows: Literal["error", "drop"] = "error"
    """`drop`: leave out transitions with NaN or inf, and cut the episode there."""
    action_scale: float = Field(1.0, gt=0.0)
    """Factor from the stored unit of the actions to the real one."""
    action_low: Bound | None = None
    """Real lower bounds of the actions, where file and environment do not say."""
    action_high: Bound | None = None
    """Real upper bounds of the actions."""

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        """A resume may start from another directory."""
        return path if path is None or path.startswith("minari:") else os.path.abspath(path)

    @model_validator(mode="after")
    def _both_bounds(self) -> "FileConfig":
        if (self.action_low is None) != (self.action_high is None):
            raise ValueError("give both `action_low` and `action_high`, or neither")
        return self


class DatasetConfig(FileConfig):
    """One source of data: a recipe (`kind`) made from the environment, or a file (`path`)."""

    kind: Literal["random", "scripted"] | None = None
    """Behaviour of the recipe."""
    size: int = Field(100_000, ge=1, le=1_000_000_000)
    """Rows of the recipe."""
    seed: Seed = 0
    """Seed of the recipe, independent of the training seeds."""
    noise: float = Field(0.0, ge=0.0)
    """Action noise of a scripted behaviour, in units of half the action range."""
    weight: float | None = Field(None, ge=0.0)
    """Share of the rows in a mixture; without weights every row is kept."""

    @model_validator(mode="after")
    def _one_source(self) -> "DatasetConfig":
        if (self.kind is None) == (self.path is None):
            raise ValueError("give either `kind` (a recipe) or `path` (a file)")
        return self


class ValidationConfig(FileConfig):
    """Held-out data: a share of the episodes, or a file of its own (`path`)."""

    fraction: float | None = Field(None, ge=0.0, lt=1.0)
    """Share of the episodes that is never trained on; 0 holds out nothing."""
    seed: Seed = 0
    """Seed of the choice of episodes, independent of the training seeds."""
    max_rows: int = Field(VALIDATION_ROWS, ge=1, le=10_000_000)
    """Most rows that a look takes, spread evenly over the held-out data."""

    @model_validator(mode="after")
    def _one_source(self) -> "ValidationConfig":
        if (self.fraction is None) == (self.path is None):
            raise ValueError("give either `fraction` (a share of the episodes) or `path` (a file)")
        return self


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, Mapping | DatasetConfig) else value if value is not None else []


class AlgorithmKwargs(StrictModel):
    """What every algorithm has under `algo_kwargs`."""

    batch_size: int = Field(256, ge=1, le=1_000_000)
    """Transitions per gradient step and member."""
    reward: RewardConfig = RewardConfig()
    """Reward transform."""


class OfflineKwargs(AlgorithmKwargs):
    """Data settings of the offline algorithms."""

    normalize_observations: bool = False
    """Whiten observations by the mean and standard deviation of the data."""
    dataset: Annotated[tuple[DatasetConfig, ...], Field(strict=False), BeforeValidator(_as_list)] = ()
    """A recipe or a file, or a list of them."""
    max_dataset_bytes: Annotated[int, Field(ge=2**20), BeforeValidator(parse_bytes)] | None = None
    """Most memory for data, such as `2GiB`; null is 80 % of what is free. A dataset directory beyond it is streamed."""

    @field_validator("dataset")
    @classmethod
    def _all_weights_or_none(cls, parts: tuple[DatasetConfig, ...]) -> tuple[DatasetConfig, ...]:
        if len({part.weight is None for part in parts}) > 1:
            raise ValueError("give every part of a mixture a `weight`, or none of them")
        return parts


class PurelyOfflineKwargs(OfflineKwargs):
    """Settings of the algorithms that learn from a fixed dataset."""

    validation: ValidationConfig | None = None
    """Held-out data; null holds out a tenth of the episodes where there is no environment, and nothing otherwise."""


class CollectionConfig(StrictModel):
    """How fresh transitions are collected and learned from; steps are environment steps."""

    buffer_capacity: int = Field(1_000_000, ge=1, le=1_000_000_000)
    """Transitions kept per member; the oldest are forgotten."""
    learning_starts: int = Field(1_000, ge=0)
    """Environment steps with uniformly random actions, before the first update."""
    train_frequency: int = Field(1, ge=1)
    """Environment steps between two rounds of updates."""
    gradient_updates_per_step: int = Field(1, ge=1, le=10_000)
    """Gradient steps of one round."""


class OnlineKwargs(CollectionConfig, AlgorithmKwargs):
    """Settings of the algorithms that learn in an environment."""


def _without_data(reward: RewardConfig) -> RewardConfig:
    if reward.normalize:
        raise ValueError("`normalize` is fitted on a dataset, and an online run has none; use `scale`")
    return reward


UnfittedReward = Annotated[RewardConfig, AfterValidator(_without_data)]


class IQLKwargs(IQLKnobs, IQLNetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of IQL."""


class XQLKwargs(XQLKnobs, IQLNetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of XQL."""


class TD3BCKwargs(TD3BCKnobs, TD3NetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of TD3+BC."""

    normalize_observations: bool = True
    """Whiten observations by the mean and standard deviation of the data."""


class CQLKwargs(CQLKnobs, SACNetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of CQL."""


class CalQLKwargs(CalQLKnobs, SACNetworkKnobs, PurelyOfflineKwargs):
    """Everything under `algo_kwargs` of Cal-QL."""


class SACKwargs(SACKnobs, SACNetworkKnobs, OnlineKwargs):
    """Everything under `algo_kwargs` of SAC."""

    reward: UnfittedReward = RewardConfig()
    """Reward transform."""


class REDQKwargs(REDQKnobs, REDQNetworkKnobs, OnlineKwargs):
    """Everything under `algo_kwargs` of REDQ."""

    reward: UnfittedReward = RewardConfig()
    """Reward transform."""
    learning_starts: int = Field(5_000, ge=0)
    """Environment steps with uniformly random actions, before the first update."""
    gradient_updates_per_step: int = Field(20, ge=1, le=10_000)
    """Gradient steps of one round."""

    @model_validator(mode="after")
    def _subset_of_the_critics(self) -> "REDQKwargs":
        check_subset(self.subset_size, self.num_critics)
        return self


class RLPDKwargs(RLPDKnobs, SACNetworkKnobs, OnlineKwargs, OfflineKwargs):
    """Everything under `algo_kwargs` of RLPD."""

    offline_pretrain_updates: int = Field(0, ge=0)
    """Gradient steps on prior data alone before the first environment step; not part of total_timesteps."""
    offline_batch_ratio: float = Field(0.5, ge=0.0, le=1.0)
    """Share of prior rows in every batch, rounded to whole rows."""

    @model_validator(mode="after")
    def _subset_of_the_critics(self) -> "RLPDKwargs":
        check_subset(self.subset_size, self.num_critics)
        return self
