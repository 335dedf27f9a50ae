"""The half of `d3rlpy_peer.py` that runs in a Python with d3rlpy: one fit of its FQE for each policy, one after the other.

Rows and the actions of the policies come as a file. Batches are drawn from the rows as arrays, where d3rlpy would gather
them one by one, so its times are better here than they would be; the policy of a batch is looked up by the same rows.
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


def fit(
    rows: dict[str, np.ndarray[Any, Any]], number: int, steps: int, widths: list[int], batch: int, rate: float, seed: int
) -> Any:
    """Return d3rlpy's FQE of one policy, fitted, with its defaults where nothing is said."""
    d3rlpy.seed(seed)
    policy, draw = Policy(rows["following"][number]), np.random.default_rng(seed)
    columns = {name: rows[name].reshape(len(rows[name]), -1) for name in COLUMNS}
    ones = np.ones((batch, 1), dtype=np.float32)

    def batch_of(size: int) -> Any:
        drawn = draw.integers(len(rows["rewards"]), size=size)
        policy.drawn = torch.from_numpy(drawn)
        found = {name: values[drawn] for name, values in columns.items()}
        return d3rlpy.dataset.TransitionMiniBatch(**found, next_actions=found["actions"], intervals=ones, transitions=[])

    shown = {name: rows[name][:1000] for name in ("observations", "actions", "rewards", "terminals")}
    dataset = d3rlpy.dataset.MDPDataset(
        **shown,
        timeouts=np.arange(len(shown["rewards"])) == len(shown["rewards"]) - 1,
        action_space=d3rlpy.ActionSpace.CONTINUOUS,
    )  # for its shapes
    dataset.sample_transition_batch = batch_of
    config = d3rlpy.ope.FQEConfig(
        learning_rate=rate,
        batch_size=batch,
        gamma=float(rows["gamma"]),
        encoder_factory=d3rlpy.models.encoders.VectorEncoderFactory(widths),
    )
    found = d3rlpy.ope.FQE(algo=policy, config=config, device="cpu:0")
    found.build_with_dataset(dataset)
    quiet = d3rlpy.logging.NoopAdapterFactory()
    found.fit(dataset, n_steps=steps, n_steps_per_epoch=steps, logger_adapter=quiet, show_progress=False)
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
    given = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(given.rows) as file:
        rows = {name: file[name] for name in file.files}
    values = []
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for number, first in enumerate(rows["first"]):
        found = fit(rows, number, given.steps, given.widths, given.batch, given.rate, given.seed)
        values.append(float(found.predict_value(rows["observations"][rows["starts"]], first).mean()))
    seconds = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - begin_cpu}
    print(
        json.dumps(
            {"library": f"d3rlpy {d3rlpy.__version__}", "steps": given.steps, "rate": given.rate, "values": values, **seconds}
        )
    )


if __name__ == "__main__":
    main()
