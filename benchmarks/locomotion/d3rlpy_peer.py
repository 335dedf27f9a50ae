"""d3rlpy on our sets, with the values of its own reproductions of D4RL; for a Python that has d3rlpy.

python -m benchmarks.locomotion.d3rlpy_peer --data data --parallel 8

d3rlpy wants an older Gymnasium than ours; installed without its dependencies it works with the newer one too, of which it
uses nothing but types here. The old gym, and scikit-learn, which another of its algorithms uses, may be missing. Batches are
drawn from our rows as arrays, where d3rlpy would gather them one by one; on a GPU its updates are recorded as CUDA graphs
(`recorded.py`). After each twentieth of a job its state is kept beside the data, and a job that was stopped goes on there.
"""

import dataclasses
import importlib.machinery
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.locomotion.offline import EPISODES
from benchmarks.locomotion.peers import Job, rows_of, run_jobs
from benchmarks.locomotion.recorded import Rate, Recorder, count_on_device

EPISODE_COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts")
BATCH_COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals")
UPDATE_COLUMNS = (*BATCH_COLUMNS, "next_actions", "returns_to_go", "intervals")
PARTS = 20  # of a job


def library() -> Any:
    """Return d3rlpy, with something in place of scikit-learn and of the old gym where these are missing."""
    if importlib.util.find_spec("sklearn") is None:
        stand_in("sklearn")
        stand_in("sklearn.neighbors", NearestNeighbors=lambda **_: None)
    if importlib.util.find_spec("gym") is None:
        sys.modules |= {"gym": gymnasium, "gym.spaces": gymnasium.spaces, "gym.wrappers": gymnasium.wrappers}
        stand_in("gym.version", VERSION="0.26.2")  # what it asks for
        stand_in("gym.wrappers.time_limit", TimeLimit=gymnasium.wrappers.TimeLimit)
        stand_in("gym.wrappers.transform_reward", TransformReward=gymnasium.wrappers.TransformReward)
    return importlib.import_module("d3rlpy")


def stand_in(name: str, **contents: Any) -> None:
    """Let a module of this name be imported that has nothing but these contents."""
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, None))
    vars(module).update(contents)
    sys.modules[name] = module


def algorithm(d3rlpy: Any, algo: str, steps: int, device: str) -> Any:
    """Return an algorithm with the values of d3rlpy's `reproductions/offline`."""
    algos, preprocessing = d3rlpy.algos, d3rlpy.preprocessing
    if algo == "iql":
        schedule = d3rlpy.optimizers.lr_schedulers.CosineAnnealingLRFactory(T_max=steps)
        return algos.IQLConfig(
            actor_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            actor_optim_factory=d3rlpy.optimizers.AdamFactory(lr_scheduler_factory=schedule),
            batch_size=256,
            weight_temp=3.0,
            max_weight=100.0,
            expectile=0.7,
            reward_scaler=preprocessing.ReturnBasedRewardScaler(multiplier=1000.0),
        ).create(device=device)
    if algo == "td3_bc":
        return algos.TD3PlusBCConfig(
            actor_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            batch_size=256,
            target_smoothing_sigma=0.2,
            target_smoothing_clip=0.5,
            alpha=2.5,
            update_actor_interval=2,
            observation_scaler=preprocessing.StandardObservationScaler(),
        ).create(device=device)
    encoder = d3rlpy.models.encoders.VectorEncoderFactory([256, 256, 256])
    return algos.CQLConfig(
        actor_learning_rate=1e-4,
        critic_learning_rate=3e-4,
        temp_learning_rate=1e-4,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        batch_size=256,
        n_action_samples=10,
        alpha_learning_rate=0.0,
        conservative_weight=5.0,
    ).create(device=device)


def feed(d3rlpy: Any, rows: dict[str, Any], draw: np.random.Generator) -> Any:
    """Return a function that draws a batch of the rows."""
    columns = {name: values.reshape(len(values), -1) for name, values in rows.items()}

    def batch(size: int) -> Any:
        chosen = draw.integers(len(rows["rewards"]), size=size)
        found = {name: values[chosen] for name, values in columns.items()}
        ones = np.ones((size, 1), dtype=np.float32)
        return d3rlpy.dataset.TransitionMiniBatch(**found, next_actions=found["actions"], intervals=ones, transitions=[])

    return batch


def record_updates(learner: Any) -> None:
    """Make the updates of an algorithm be recorded once they are warm, and replayed from then on."""
    impl = learner.impl
    own, device = impl.inner_update, torch.device(impl.device)
    wrappers = {name: part for name, part in vars(impl.modules).items() if name.endswith("_optim") and part is not None}
    count_on_device(wrapper.optim for wrapper in wrappers.values())
    rate, schedule = None, wrappers["actor_optim"]._lr_scheduler
    if schedule is not None:
        rate = Rate(wrappers["actor_optim"].optim, schedule, device)
        wrappers["actor_optim"]._lr_scheduler = None
    last: list[Any] = []

    def train(columns: list[torch.Tensor], count: int) -> None:
        own(dataclasses.replace(last[0], **dict(zip(UPDATE_COLUMNS, columns, strict=True))), count)

    recorder = Recorder(train, getattr(impl, "_update_actor_interval", 1), device, rate)

    def update(batch: Any, count: int) -> dict[str, float]:
        last[:] = [batch]
        recorder.train([getattr(batch, name) for name in UPDATE_COLUMNS], count)
        return {}

    impl.inner_update = update


def evaluate(algo: Any, env_id: str, seed: int) -> list[float]:
    """Return the returns of the greedy policy, all episodes side by side."""
    envs = [gymnasium.make(env_id) for _ in range(EPISODES)]
    seen = np.stack([env.reset(seed=1_000_000 + 100 * seed + number)[0] for number, env in enumerate(envs)])
    returns, running = np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
    while running.any():
        actions = algo.predict(seen.astype(np.float32))
        for number in np.flatnonzero(running):
            seen[number], reward, terminated, truncated, _ = envs[number].step(actions[number])
            returns[number] += float(reward)
            running[number] = not (terminated or truncated)
    return [float(value) for value in returns]


def train(job: Job) -> None:
    """Train one seed and write down what its last policy reaches; a job that was stopped goes on from its last part."""
    d3rlpy, dataset = library(), job.dataset()
    d3rlpy.seed(job.seed)
    episodes = d3rlpy.dataset.MDPDataset(**rows_of(dataset, EPISODE_COLUMNS), action_space=d3rlpy.ActionSpace.CONTINUOUS)
    rows = rows_of(dataset, BATCH_COLUMNS)
    learner = algorithm(d3rlpy, job.algo, job.steps, job.device)
    learner.build_with_dataset(episodes)
    if job.device != "cpu":
        record_updates(learner)
    seconds, part = go_on(learner, job.kept), max(1, job.steps // PARTS)
    quiet = d3rlpy.logging.NoopAdapterFactory()
    while (done := learner.grad_step) < job.steps:
        begin = time.perf_counter()
        d3rlpy.seed(job.steps * (job.seed + 1) + done)  # what is drawn depends on seed and part alone
        episodes.sample_transition_batch = feed(d3rlpy, rows, np.random.default_rng((job.seed, done)))
        count = min(part, job.steps - done)
        learner.fit(episodes, n_steps=count, n_steps_per_epoch=count, logger_adapter=quiet, show_progress=False)
        seconds += time.perf_counter() - begin
        keep(learner, job.kept, seconds)
        print(f"{job.kept.name}: {learner.grad_step:,} of {job.steps:,} steps, {seconds:.0f} s", flush=True)
    job.done(f"d3rlpy {d3rlpy.__version__}", dataset, evaluate(learner, job.env_id, job.seed), seconds)


def keep(learner: Any, place: Path, seconds: float) -> None:
    """Keep the state of a job; whenever this is stopped, either the last state or this one is there whole."""
    place.mkdir(parents=True, exist_ok=True)
    state, pointer = place / f"{learner.grad_step}.pt", place / "latest.json"
    learner.save_model(state)
    pointer.with_suffix(".new").write_text(json.dumps({"steps": learner.grad_step, "seconds": seconds}))
    pointer.with_suffix(".new").replace(pointer)
    for old in set(place.glob("*.pt")) - {state}:
        old.unlink()


def go_on(learner: Any, place: Path) -> float:
    """Put a learner where its job was stopped, if it was; return the seconds that it has taken."""
    if not (place / "latest.json").exists():
        return 0.0
    found = json.loads((place / "latest.json").read_text())
    learner.load_model(place / f"{found['steps']}.pt")
    learner.set_grad_step(found["steps"])
    return float(found["seconds"])


if __name__ == "__main__":
    run_jobs(__doc__, "d3rlpy", train, needs_source=False, algos=("iql", "td3_bc", "cql"))
