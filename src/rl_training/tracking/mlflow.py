"""MLflow: one run per member, those of a population under a common parent; where the user's MLflow points to."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import mlflow
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from rl_training.tracking.subject import Hyperparameters, Row, Subject

_TAG = "rl_training.id"
_MOST_METRICS, _MOST_PARAMS, _LONGEST = 1000, 100, 500  # of one request, and of the text of a parameter


class MlflowSink:
    """A metric is logged once at each step: those that a run of MLflow has are asked for when it is opened again."""

    def __init__(self, subject: Subject) -> None:
        self._client = MlflowClient()
        experiment = self._experiment(subject.project)
        self.where = f"experiment {experiment.name} in {mlflow.get_tracking_uri()}"
        self._opened: list[str] = []
        self._held: dict[int, set[tuple[str, int]]] = {}
        self._runs: dict[int, str] = {}
        common: dict[str, str] = {}
        if len(subject.members) > 1:
            settings = dict(set.intersection(*(set(member.hyperparameters.items()) for member in subject.members)))
            parent = self._open(experiment.experiment_id, subject.id, subject.name, settings, {})
            common = {"mlflow.parentRunId": parent.info.run_id}
        for member in subject.members:
            key, title = f"{subject.id}/{member.number}", subject.title(member)
            run = self._open(experiment.experiment_id, key, title, member.hyperparameters, common)
            self._runs[member.number] = run.info.run_id
            self._held[member.number] = {
                (name, metric.step)
                for name in run.data.metrics
                for metric in self._client.get_metric_history(run.info.run_id, name)
            }

    def _experiment(self, name: str) -> Any:
        """The experiment that the environment variables of MLflow name, otherwise that of the project."""
        if number := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return self._client.get_experiment(number)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
        found = self._client.get_experiment_by_name(name)
        return found or self._client.get_experiment(self._client.create_experiment(name))

    def _open(self, experiment: str, key: str, title: str, settings: Hyperparameters, tags: dict[str, str]) -> Any:
        """Find a run by its tag, or create it; log the settings that it lacks."""
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{key}'", max_results=1)
        run = found[0] if found else self._client.create_run(experiment, tags={**tags, _TAG: key}, run_name=title)
        self._opened.append(run.info.run_id)
        self._client.update_run(run.info.run_id, status="RUNNING")
        lacking = {_key(name): value for name, value in settings.items() if _key(name) not in run.data.params}
        params = [Param(name, str(value)[:_LONGEST]) for name, value in lacking.items()]
        for some in _portions(params, _MOST_PARAMS):
            self._client.log_batch(run.info.run_id, params=some, synchronous=True)
        return run

    def send(self, rows: list[Row]) -> None:
        """Log the metrics that the runs lack."""
        now = int(time.time() * 1000)
        for member, run in self._runs.items():
            mine = [row for row in rows if row.member == member]
            metrics = [
                Metric(_key(name), value, now, row.position)
                for row in mine
                for name, value in row.values.items()
                if (_key(name), row.position) not in self._held[member]
            ]
            for some in _portions(metrics, _MOST_METRICS):
                self._client.log_batch(run, metrics=some, synchronous=True)

    def close(self, *, finished: bool) -> None:
        """Mark the runs as finished, or as killed."""
        for run in self._opened:
            self._client.set_terminated(run, "FINISHED" if finished else "KILLED")


def _key(name: str) -> str:
    """Return a name in the letters that MLflow accepts."""
    return re.sub(r"[^\w./: -]", "_", name)


def _portions(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), size):
        yield values[begin : begin + size]
