"""The half of `d3rlpy_peer.py` that runs in a Python with d3rlpy: one fit of its FQE for each policy, one after the other.

Rows and the actions of the policies come as a file. Batches are gathered as d3rlpy does, transition by transition, or with
`--arrays` from the rows as arrays, which is faster; what the policy does there is looked up either way.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import d3rlpy
import numpy as np
import torch

COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals")


class Policy:
    """A policy as d3rlpy's FQE sees one: its actions where the rows of the last batch lead."""

    def __init__(self, following: np.ndarray[Any, Any]) -> None:
        self.impl, self.following, self.drawn = self, torch.from_numpy(following), torch.zeros(0, dtype=torch.int64)

    def predict_best_action(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the actions of the policy; `observations` are the next ones of the batch."""
        assert len(observations) == len(self.drawn)  # noqa: S101
        return self.following[self.drawn]


def dataset_of(rows: dict[str, np.ndarray[Any, Any]]) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return d3rlpy's dataset, and the row of each of its transitions: all but the last of an episode that did not end."""
    timeouts = np.zeros(len(rows["rewards"]))
    timeouts[np.append(rows["starts"][1:], len(timeouts)) - 1] = 1.0
    columns = {name: rows[name] for name in ("observations", "actions", "rewards", "terminals")}
    timeouts *= 1.0 - columns["terminals"].reshape(-1)
    dataset = d3rlpy.dataset.MDPDataset(**columns, timeouts=timeouts, action_space=d3rlpy.ActionSpace.CONTINUOUS)
    return dataset, np.flatnonzero(timeouts == 0.0)


def fit(
    rows: dict[str, np.ndarray[Any, Any]],
    dataset: Any,
    row_of: np.ndarray[Any, Any],
    number: int,
    given: argparse.Namespace,
) -> Any:
    """Return d3rlpy's FQE of one policy, fitted, with its defaults where nothing is said."""
    d3rlpy.seed(given.seed)
    policy, draw = Policy(rows["following"][number]), np.random.default_rng(given.seed)
    columns = {name: rows[name].reshape(len(rows[name]), -1) for name in COLUMNS}
    ones = np.ones((given.batch, 1), dtype=np.float32)

    def gathered(size: int) -> Any:
        drawn = draw.integers(len(row_of), size=size)
        policy.drawn = torch.from_numpy(row_of[drawn])
        picked = [dataset.transition_picker(*dataset.buffer[index]) for index in drawn]
        return d3rlpy.dataset.TransitionMiniBatch.from_transitions(picked)

    def from_arrays(size: int) -> Any:
        drawn = draw.integers(len(columns["rewards"]), size=size)
        policy.drawn = torch.from_numpy(drawn)
        found = {name: values[drawn] for name, values in columns.items()}
        return d3rlpy.dataset.TransitionMiniBatch(**found, next_actions=found["actions"], intervals=ones, transitions=[])

    dataset.sample_transition_batch = from_arrays if given.arrays else gathered
    config = d3rlpy.ope.FQEConfig(
        learning_rate=given.rate,
        batch_size=given.batch,
        gamma=float(rows["gamma"]),
        encoder_factory=d3rlpy.models.encoders.VectorEncoderFactory(given.widths),
    )
    found = d3rlpy.ope.FQE(algo=policy, config=config, device="cpu:0")
    found.build_with_dataset(dataset)
    quiet = d3rlpy.logging.NoopAdapterFactory()
    found.fit(dataset, n_steps=given.steps, n_steps_per_epoch=given.steps, logger_adapter=quiet, show_progress=False)
    return found


def main() -> None:
    """Fit every policy; print values and times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--widths", type=int, nargs="+", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--rate", type=float, default=d3rlpy.ope.FQEConfig().learning_rate)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arrays", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(given.rows) as file:
        rows = {name: file[name] for name in file.files}
    values, (dataset, row_of) = [], dataset_of(rows)
    assert len(row_of) == dataset.transition_count  # noqa: S101
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for number, first in enumerate(rows["first"]):
        found = fit(rows, dataset, row_of, number, given)
        values.append(float(found.predict_value(rows["observations"][rows["starts"]], first).mean()))
    seconds = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - begin_cpu}
    print(
        json.dumps(
            {"library": f"d3rlpy {d3rlpy.__version__}", "steps": given.steps, "rate": given.rate, "values": values, **seconds}
        )
    )


if __name__ == "__main__":
    main()
