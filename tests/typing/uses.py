# pyright: strict
"""Right and wrong uses of the public names; `test_types.py` wants an error on each marked line and on no other."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rl_training
import rl_training.algorithms
from rl_training import CQL, IQL, RLPD, SAC, TD3BC, EarlyStopping, IQLAlgorithm, Policy, TransitionDataset, load_dataset
from rl_training.algorithms import IQL as LEARNER
from rl_training.algorithms import iql_loss
from rl_training.api import ManagedAlgorithm, XQLAlgorithm
from rl_training.data import mix_datasets
from rl_training.experiment import RunConfig, load_config
from rl_training.models import MLPIQLModel
from rl_training.runtime import train_iql
from rl_training.runtime.result import TrainingResult

BLOCK = {"kind": "random"}

model: IQL = IQL("Pendulum-v1", dataset={"kind": "random"}, expectile=0.8, hidden_sizes=[64, 64]).learn(10)
mean: float = model.evaluate()["return_mean"]
interval: list[float] | None = model.evaluate(episodes=3, seed=1)["return_interval"]
member_seed: int = model.evaluate()["members"][0]["seed"]
knobs: dict[str, float] | None = model.evaluate()["members"][0].get("knobs")
action: NDArray[np.float32] = model.predict([1.0, 0.0, 0.0])[0]
again: IQL = IQL.load("run").finetune(100)
later: IQL = model.finetune(100, env_id="Pendulum-v1", prior_ratio=0.25)
elsewhere: float = model.evaluate(3, env_id="Pendulum-v1")["return_mean"]
frames: int = model.render("swing.gif", episodes=2, members="all").frames
named: NDArray[np.float32] = model.predict({"T1": 60.0, "T2": [1.0, 2.0]})[0]
worth: np.float64 | NDArray[np.float64] = model.value([1.0, 0.0, 0.0], member=0)
judged: np.float64 | NDArray[np.float64] = model.q({"T1": 60.0}, {"Q1": 10.0})
losses: NDArray[Any] = model.history["train/critic_loss"]
saved: Path = model.save("policy", overwrite=True)
stopped: IQL = model.learn(10, callback=[lambda step, rows: step < 5, EarlyStopping(patience=2)])
policy: Policy = model.policy
base: ManagedAlgorithm = SAC("Pendulum-v1", alpha="auto", buffer_capacity=1000, eval_interval=5).learn(10)
minimalist: TD3BC = TD3BC(dataset="log.npz", alpha=2.5, batch_size=64, validation={"fraction": 0.1})
mixed: RLPD = RLPD("Pendulum-v1", dataset=[BLOCK, BLOCK], seeds=range(4), offline_batch_ratio=0.25)
swept = CQL("Pendulum-v1", dataset=BLOCK, sweep={"cql_alpha": [1.0, 5.0]}, max_dataset_bytes="2GiB", target_entropy=None)
paced = IQL(dataset=BLOCK, learning_rate_schedule="cosine", reward={"scale": 0.1}, max_grad_norm=1, engine="eager")
parts = IQL(dataset=BLOCK, learning_rate_schedule={"actor": "linear"}, early_stopping={"patience": 3}, hidden_sizes=(64,))

data: TransitionDataset = load_dataset("log.npz")
joined: TransitionDataset = mix_datasets([data, data])
config: RunConfig[Any] = load_config("iql/pendulum")
result: TrainingResult = train_iql(load_config("iql/pendulum"), "run")
learners: list[type[LEARNER]] = [IQLAlgorithm, XQLAlgorithm]
version: str = rl_training.__version__
names: list[str] = rl_training.__all__

IQL(expectlie=0.7)  # wrong
IQL(expectile="high")  # wrong
IQL(hidden_sizes=3)  # wrong
IQL(hidden_sizes=[64, "64"])  # wrong
IQL(learning_rate_schedule="cosin")  # wrong
IQL(engine="fast")  # wrong
IQL(seed="0")  # wrong
IQL(algo="xql")  # wrong
IQL(loss_temperature=1.0)  # wrong
IQL(reward=0.1)  # wrong
IQL("Pendulum-v1").lern(3)  # wrong
IQL("Pendulum-v1").learn("ten")  # wrong
SAC("Pendulum-v1", dataset={"kind": "random"})  # wrong
SAC("Pendulum-v1", validation=None)  # wrong
SAC("Pendulum-v1", alpha="automatic")  # wrong
TD3BC(expectile=0.9)  # wrong
IQL(initialization="xavierr")  # wrong
CQL(policy="deterministic")  # wrong
CQL(max_dataset_bytes=1.5)  # wrong
CQL(sweep={"cql_alpha": 5.0})  # wrong
model.learn(10, callback=3)  # wrong
model.save("policy", overwrit=True)  # wrong
model.render("swing.gif", episode=2)  # wrong
model.evaluate()["retrun_mean"]  # wrong
model.evaluate()["members"][0]["mean"]  # wrong
text: str = model.evaluate()["return_mean"]  # wrong
array: NDArray[np.float32] = model.predict([1.0])  # wrong
learned: SAC = model.learn(10)  # wrong
misspelt = rl_training.IQQL  # wrong
loss = rl_training.algorithms.xql_los  # wrong
length = load_dataset("log.npz").lenght  # wrong
train_iql("iql/pendulum", "run")  # wrong
MLPIQLModel("three", 1)  # wrong
iql_loss(expectile="high")  # wrong
size = data.siez  # wrong
