"""stable-baselines3's side of a comparison: run by a Python that has it, so it imports nothing from this package.

It reads one line of JSON settings from standard input and answers with the versions once it has begun to learn; then it
answers every `round N` with the seconds that N environment steps took, each with its updates.
"""

import json
import os
import sys
import time
from typing import Any


def make_algorithm(settings: dict[str, Any], sb3: Any) -> Any:
    """Return the algorithm with our networks and rhythm, and the library's defaults otherwise."""
    import gymnasium

    return getattr(sb3, settings["algorithm"])(
        "MlpPolicy",
        gymnasium.make(settings["env_id"], **settings["env_kwargs"]),
        policy_kwargs={"net_arch": settings["hidden_sizes"]},
        batch_size=settings["batch_size"],
        buffer_size=settings["buffer_capacity"],
        learning_starts=settings["learning_starts"],
        train_freq=settings["train_frequency"],
        gradient_steps=settings["gradient_updates_per_step"],
        device=settings["device"],
        seed=0,
    )


def main() -> None:
    """Answer requests until standard input ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())

    import stable_baselines3
    import torch

    torch.set_num_threads(settings["threads"])
    torch.backends.cuda.matmul.allow_tf32 = settings["tf32"]
    algorithm = make_algorithm(settings, stable_baselines3)

    def learn(steps: int) -> None:
        algorithm.learn(steps, reset_num_timesteps=False)

    learn(settings["learning_starts"] + 10)
    print(json.dumps({"version": stable_baselines3.__version__, "torch": torch.__version__}), file=channel, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        learn(int(line.split()[1]))
        print(json.dumps({"seconds": time.perf_counter() - start}), file=channel, flush=True)


if __name__ == "__main__":
    main()
