"""d3rlpy's side of a comparison: run by a Python that has d3rlpy, so it imports nothing from this package.

It reads one line of JSON settings from standard input and answers with the versions; then it answers every `round N` with the
seconds that N updates took, and how many of them went into sampling. What the libraries print goes to standard error.
"""

import json
import os
import sys
import time
from typing import Any

EPISODE = 1000


def make_dataset(settings: dict[str, Any], d3rlpy: Any) -> Any:
    """Return random transitions in episodes of a thousand steps, all of which end by a time limit."""
    import numpy as np

    rows, draw = settings["rows"], np.random.Generator(np.random.Philox(0))
    ends = (np.arange(1, rows + 1) % EPISODE == 0).astype(np.float32)
    ends[-1] = 1.0
    return d3rlpy.dataset.MDPDataset(
        observations=draw.standard_normal((rows, settings["observations"]), dtype=np.float32),
        actions=draw.standard_normal((rows, settings["actions"]), dtype=np.float32).clip(-1.0, 1.0),
        rewards=draw.standard_normal((rows, 1), dtype=np.float32),
        terminals=np.zeros(rows, dtype=np.float32),
        timeouts=ends,
        action_space=d3rlpy.ActionSpace.CONTINUOUS,
    )


def make_algorithm(settings: dict[str, Any], d3rlpy: Any) -> Any:
    """Return the algorithm with our networks and batch size, and the library's defaults otherwise."""
    encoder = d3rlpy.models.encoders.VectorEncoderFactory(hidden_units=settings["hidden_sizes"])
    options = {"actor_encoder_factory": encoder, "critic_encoder_factory": encoder, "n_critics": settings["num_critics"]}
    name = settings["algorithm"]
    if name == "IQL":
        options["value_encoder_factory"] = encoder
    if name in ("CQL", "CalQL"):  # with a fixed weight of the penalty, like ours
        options |= {"n_action_samples": settings["num_cql_samples"], "alpha_learning_rate": 0.0}
    config = getattr(d3rlpy.algos, f"{name}Config")
    created = config(batch_size=settings["batch_size"], compile_graph=settings["compile_graph"], **options)
    return created.create(device=settings["device"])


def timed_round(algorithm: Any, dataset: Any, batch_size: int, count: int) -> dict[str, float]:
    """Return the seconds of `count` updates, sampling included, and the seconds of sampling alone."""
    sampling, start = 0.0, time.perf_counter()
    for _ in range(count):
        before = time.perf_counter()
        batch = dataset.sample_transition_batch(batch_size)
        sampling += time.perf_counter() - before
        algorithm.update(batch)
    return {"seconds": time.perf_counter() - start, "sampling_seconds": sampling}


def main() -> None:
    """Answer requests until standard input ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())

    import d3rlpy
    import torch

    torch.set_num_threads(settings["threads"])
    torch.backends.cuda.matmul.allow_tf32 = settings["tf32"]
    dataset, algorithm = make_dataset(settings, d3rlpy), make_algorithm(settings, d3rlpy)
    algorithm.build_with_dataset(dataset)
    print(json.dumps({"version": d3rlpy.__version__, "torch": torch.__version__}), file=channel, flush=True)
    for line in sys.stdin:
        count = int(line.split()[1])
        print(json.dumps(timed_round(algorithm, dataset, settings["batch_size"], count)), file=channel, flush=True)


if __name__ == "__main__":
    main()
