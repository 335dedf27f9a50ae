"""`python -m benchmarks.data`: what reading data costs, as ratios measured side by side in one run.

* Reading D4RL-style HDF5 of 1,000,000 transitions (observations of 17, actions of 6) against reading the raw arrays with
  h5py, with and without the fingerprint and the doctor's cheap checks; contiguous and gzip-compressed files.
* Training from a dataset directory that is ten times the memory limit against training from memory: updates per second,
  the time to open it, and the anonymous resident memory of the process (RssAnon of /proc/self/status). `--rows 20000000`
  is the full size; for the figures called cold the file is dropped from the page cache (`posix_fadvise`).

Both sides of a ratio are timed in turn, and the best round of each counts. `--json` prints the figures as one object.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from benchmarks.timing import best_times
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.data import DatasetWriter, TransitionDataset, load_dataset
from rl_training.data.processing import RunData, StreamedDataset
from rl_training.doctor.doctor import quick_findings
from rl_training.runtime.batches.prefetch import dataset_batches
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.execution.mode import keep_freed_memory
from rl_training.runtime.execution.steps import GradientSteps
from rl_training.runtime.offline_data import process_offline_dataset

OBSERVATIONS, ACTIONS, LENGTH, BATCH = 11, 3, 1000, 256


def arrays(rows: int, seed: int, observations: int = OBSERVATIONS, actions: int = ACTIONS) -> dict[str, Any]:
    """Return synthetic transitions: a random walk, cut every thousand rows."""
    draw = np.random.Generator(np.random.Philox(seed))
    walk = draw.standard_normal((rows + 1, observations), dtype=np.float32)
    ends = np.arange(1, rows + 1) % LENGTH == 0
    return {
        "observations": walk[:-1],
        "actions": draw.uniform(-1, 1, (rows, actions)).astype(np.float32),
        "rewards": draw.standard_normal(rows, dtype=np.float32),
        "next_observations": walk[1:],
        "terminals": np.zeros(rows, dtype=bool),
        "timeouts": ends,
    }


def reading(rows: int, rounds: int) -> dict[str, float]:
    """Return the time of loading divided by that of the raw read, plain and with fingerprint and doctor."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in (("contiguous", {}), ("gzip", {"compression": "gzip", "chunks": True})):
            path = Path(folder) / f"{name}.hdf5"
            with h5py.File(path, "w") as file:
                for field, values in arrays(rows, 0, 17, 6).items():
                    file.create_dataset(field, data=values, **options)

            def raw(path: Path = path) -> None:
                with h5py.File(path, "r") as file:
                    for field in file:
                        file[field][()]

            def plain(path: Path = path) -> None:
                load_dataset(path)

            def checked(path: Path = path) -> None:
                data = load_dataset(path)
                quick_findings(data)
                data.fingerprint  # noqa: B018 - computed on access

            times = best_times((raw, plain, checked), 1 if name == "gzip" else rounds)
            figures |= {f"{name}/load": times[1] / times[0], f"{name}/checked": times[2] / times[0]}
    return figures


class Memory:
    """The largest RssAnon observed inside the block."""

    def __init__(self) -> None:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, anonymous_bytes())

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def anonymous_bytes() -> int:
    """Return the anonymous resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def write_store(path: Path, rows: int) -> None:
    """Write a synthetic dataset of `rows` rows in parts of a million."""
    with DatasetWriter(path) as writer:
        for part in range(0, rows, 1_000_000):
            count = min(1_000_000, rows - part)
            writer.append(TransitionDataset.from_dict(arrays(count, 1 + part), action_low=[-1] * 3, action_high=[1] * 3))


def forget_pages(path: Path, data: TransitionDataset | None = None) -> None:
    """Drop the file from the page cache; mapped pages would stay there, so they are released first."""
    if data is not None and data.records is not None:
        data.records.forget_pages()
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def streaming(rows: int, hidden: int, rounds: int, folder: Path, device: torch.device) -> dict[str, float]:
    """Return speeds, times and memory of training from a store of ten times the memory limit, and from memory."""
    store = folder / f"store-{rows}"
    if not store.exists():
        write_store(store, rows)
    size = (store / "rows.npy").stat().st_size
    forget_pages(store / "rows.npy")
    figures: dict[str, float] = {"rows": rows, "bytes": size, "limit": size // 10}
    with Memory() as memory:
        start = time.perf_counter()
        data = load_dataset(store)
        figures["open_seconds_cold"] = time.perf_counter() - start
        start = time.perf_counter()
        config, processed = prepared(data, hidden, size // 10)
        if not isinstance(processed, StreamedDataset):
            raise SystemExit("the data fits into memory, so nothing is streamed")
        figures["process_seconds"] = time.perf_counter() - start
        run = gradient_steps(config, processed, device)
        for _ in range(6):
            steps(run)()
        run.batches.close()
    figures["rss_anon_peak"] = memory.peak
    start = time.perf_counter()
    whole = gradient_steps(*prepared(load_dataset(store), hidden, 2**40), device)
    figures["memory_load_seconds_warm"] = time.perf_counter() - start
    forget_pages(store / "rows.npy", data)
    run = gradient_steps(config, processed, device)
    figures["steps_per_second_first_100_cold"] = 100 / timed(steps(run))
    pairs = [(timed(steps(run)), timed(steps(whole))) for _ in range(10)]
    figures["cold_over_memory"] = sum(pair[1] for pair in pairs) / sum(pair[0] for pair in pairs)
    times = best_times((steps(run), steps(whole)), rounds)
    run.batches.close()
    figures |= {"steps_per_second_streamed": 100 / times[0], "steps_per_second_memory": 100 / times[1]}
    figures["streamed_over_memory"] = times[1] / times[0]
    return figures


def timed(function: Callable[[], None]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def prepared(data: TransitionDataset, hidden: int, limit: int) -> tuple[RunConfig[Any], RunData]:
    """Return an IQL config and the data processed for it."""
    kwargs = {"hidden_sizes": [hidden, hidden], "max_dataset_bytes": limit, "batch_size": BATCH}
    config = make_config({"algo": "iql", "algo_kwargs": kwargs})
    return config, process_offline_dataset(data, config)


def gradient_steps(config: RunConfig[Any], data: RunData, device: torch.device) -> GradientSteps:
    """Return IQL's gradient steps on the data."""
    learner = build_learner("iql", data.spaces, [0], device, config.algo_kwargs)
    return GradientSteps(learner, dataset_batches(data, learner.model.seed_tensor, BATCH, device))


def steps(run: GradientSteps) -> Callable[[], None]:
    """Return a function that takes a chunk of a hundred steps."""

    def chunk() -> None:
        run.run(run.learner.step, 100)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return chunk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the store goes and stays; a temporary directory by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    figures = {"reading": reading(1_000_000, options.rounds)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        figures["streaming"] = streaming(options.rows, options.hidden, options.rounds, folder, torch.device(options.device))
    if options.json:
        print(json.dumps(figures))
        return
    for group, values in figures.items():
        for name, value in values.items():
            print(f"{group:<10} {name:<28} {value:,.3f}")


if __name__ == "__main__":
    main()
