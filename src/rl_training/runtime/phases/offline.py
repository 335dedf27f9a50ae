"""Offline training: the data a config asks for, and gradient steps on it."""

from collections.abc import Callable, Mapping
from typing import Any

from rl_training.algorithms.learner import Learner, Metrics
from rl_training.data.dataset_loaders import read_dataset
from rl_training.data.file_guards import check_size
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_datasets
from rl_training.data.reading import ReadOptions
from rl_training.data.recipes import make_dataset
from rl_training.errors import ConfigError
from rl_training.rng import Draws
from rl_training.runtime.compiled import block_length
from rl_training.runtime.engine import Acceleration, Engine, chunk_length
from rl_training.runtime.feeds import DatasetFeed, RowFeed, SourceFeed
from rl_training.runtime.settings import FileSettings, RunSettings
from rl_training.runtime.sources import BatchSource, Chunk, DatasetSource


def build_offline_dataset(settings: RunSettings, check: Callable[[], None] = lambda: None) -> TransitionDataset:
    """Return the dataset a config asks for: a recipe, a file, or a weighted mixture of them."""
    parts = settings.algo_kwargs.dataset
    if not parts:
        raise ConfigError("there is no dataset: set algo_kwargs.dataset (a recipe `kind` or a file `path`), or pass one")
    datasets, limit = [], settings.algo_kwargs.max_dataset_bytes
    for part in parts:
        if part.path is not None:
            datasets.append(load_file(part, limit))
        elif settings.env_id is None:
            raise ConfigError(f"the recipe `{part.kind}` needs an environment: set env_id, or give a file as dataset.path")
        else:
            datasets.append(make_dataset(settings.env_id, part, check))
    if len(datasets) == 1:
        return datasets[0]
    check_size("the mixture", 2 * sum(values.nbytes for d in datasets for values in d.fields().values()), limit)
    weights = None if parts[0].weight is None else [part.weight for part in parts]
    return mix_datasets(datasets, weights, seed=parts[0].seed)


def load_file(file: FileSettings, max_bytes: int | None) -> TransitionDataset:
    """Return the dataset of a file as its settings say it is to be read."""
    options = ReadOptions(
        columns=file.columns,
        ends=file.ends,
        next_observations=file.next_observations,
        reward_lag=file.reward_lag,
        reward_lag_across=file.reward_lag_across,
        on_bad_rows=file.on_bad_rows,
        action_scale=file.action_scale,
        action_low=file.action_low,
        action_high=file.action_high,
        max_bytes=max_bytes,
    )
    return read_dataset(str(file.path), file.format, options).dataset()


class OfflineEngine(Engine):
    """Gradient steps on a fixed dataset; a position is a gradient step."""

    def __init__(
        self,
        learner: Learner[Any, Any],
        source: BatchSource,
        schedules: Mapping[str, str],
        total: int,
        span: int | None = None,
    ) -> None:
        super().__init__(learner, schedules, total, chunk_length(learner, source.batch_size), span)
        self.source = source
        self._ready: tuple[int, int, Chunk] | None = None
        self._carried: SourceFeed | None = None

    def feed(self, acceleration: Acceleration) -> RowFeed:
        """Return where compiled steps take their rows; rows that are on the device already need no fixed place."""
        block = block_length(self.learner.model.members)
        resident = isinstance(self.source, DatasetSource)
        if acceleration.on_gpu:  # whole blocks; more of them where a chunk's rows need no place of their own
            chunk = chunk_length(self.learner, self.source.batch_size, compiled=True) if resident else self.chunk
            self.chunk = max(block, chunk - chunk % block)
        if isinstance(self.source, DatasetSource):
            return DatasetFeed(self.source)
        self._carried = SourceFeed(self.source, block)
        return self._carried

    def prepare(self, first: int, count: int) -> None:
        """Read the batches of the next `count` steps; nothing of the learner changes."""
        if self.compiled is None:
            self._ready = (first, count, self.source.chunk(first, count))
        elif self._carried is not None:
            self._carried.take(first, self.source.rows_of(first, count))

    def run(self, first: int, count: int) -> Metrics:
        """Take `count` gradient steps and return the metrics of the last."""
        rates = (lambda offset: self.rates(first + offset)) if self.has_schedules else None
        taken, metrics = self.take_compiled(first, count, rates, report=True)
        return metrics if taken == count else self._run_eagerly(first + taken, count - taken)

    def _run_eagerly(self, first: int, count: int) -> Metrics:
        if self._ready is None or self._ready[:2] != (first, count):
            self.prepare(first, count)
        (_, _, chunk), self._ready = self._ready, None  # type: ignore[misc]
        draws = Draws.of_steps(self.source.seeds, first, count)
        metrics: Metrics = {}
        for offset in range(count):
            batch, rates = chunk(offset), self.rates(first + offset)
            metrics = self.learner.train_step(batch, draws.at(offset), rates, report=offset == count - 1)
        return metrics

    def close(self) -> None:
        """Let go of the source."""
        self.source.close()
