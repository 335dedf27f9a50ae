"""What a benchmark measures, and the configs of its runs."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from rl_training.config.base import Sizes, StrictModel
from rl_training.config.environment import EnvKwargs, Workers
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError
from rl_training.experiment.registry import REGISTRY, get_spec

EVAL_INTERVAL, EVAL_EPISODES = 5_000, 10
_LONG = 1_000_000  # budget of a run that is stopped earlier, so that it is executed as a long one
_LEARNING_STARTS = 256  # environment steps before the first update, so that little else is measured
_ROWS_PER_RUN = 20  # timed parts of a run, at least
_NO_DATA = ("dataset", "validation", "max_dataset_bytes")  # not accepted, because a benchmark makes its rows


class RunSettings(StrictModel):
    """Settings of the runs that every benchmark measures."""

    algo: str
    """An algorithm, or `all`."""
    members: int = Field(1, ge=1, le=4096)
    """Members trained side by side."""
    hidden: Sizes | None = None
    """Widths of the hidden layers; null is the algorithm's default."""
    batch_size: int | None = Field(None, ge=1, le=1_000_000)
    """Transitions per gradient step and member; null is the algorithm's default."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    engine: str = "auto"
    """auto, eager, compile or graph."""
    precision: str = "float32"
    """float32, tf32 or bf16."""
    algo_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further settings of the algorithm."""

    def config(self, algo: str, **changes: Any) -> RunConfig[Any]:
        """Return the checked configuration of a run; `changes` add to it."""
        unused = [name for name in _NO_DATA if name in self.algo_kwargs]
        if unused:
            raise ConfigError(f"--set {unused[0]}=...: a benchmark makes its own rows; use --rows")
        chosen = {"hidden_sizes": self.hidden, "batch_size": self.batch_size}
        shape = {name: value for name, value in chosen.items() if value is not None}
        how = {"device": self.device, "engine": self.engine, "precision": self.precision}
        kwargs = {**changes.pop("algo_kwargs", {}), **shape, **self.algo_kwargs}
        return make_config(
            {"algo": algo, "seeds": list(range(self.members)), **how, **changes, "algo_kwargs": kwargs}, "bench"
        )


class BenchSettings(RunSettings):
    """Gradient steps on synthetic rows: shapes, device, and how long."""

    obs: int = Field(11, ge=1, le=100_000)
    """Size of an observation."""
    act: int = Field(3, ge=1, le=10_000)
    """Size of an action."""
    rows: int = Field(1_000_000, ge=1, le=1_000_000_000)
    """Synthetic transitions to sample from."""
    seconds: float = Field(5.0, gt=0.0, le=3600.0)
    """Seconds of measuring per algorithm."""

    def configs(self) -> list[RunConfig[Any]]:
        """Return the checked configuration of every run to measure."""
        algos = REGISTRY if self.algo == "all" else [get_spec(self.algo).id]
        return [self.config(algo, env_id="Pendulum-v1") for algo in algos]


class EndToEndSettings(RunSettings):
    """Whole runs of one algorithm in an environment."""

    env: str = "Pendulum-v1"
    """Gymnasium environment."""
    env_kwargs: EnvKwargs
    """Arguments of the environment."""
    env_imports: list[str] = Field(default_factory=list)
    """Modules that `--import` has loaded for the environment."""
    workers: Workers = "auto"
    """Processes that step the environments."""
    eval_mode: Literal["wait", "beside"] = "wait"
    """Whether training waits for evaluations."""
    steps: int | None = Field(None, ge=_ROWS_PER_RUN, le=1_000_000_000)
    """Steps of a run; null is 20,000 environment steps, or 1,000,000 gradient steps of an offline algorithm."""
    rows: int = Field(100_000, ge=1, le=100_000_000)
    """Transitions of random actions that an offline algorithm learns from."""
    seconds: float = Field(30.0, gt=0.0, le=3600.0)
    """Seconds of a comparison."""

    @property
    def length(self) -> int:
        """The steps of a run."""
        return self.steps or (20_000 if get_spec(self.algo).online else 1_000_000)

    def run_config(self, data: Path, *, evaluated: bool = True, log_interval: int | None = None) -> RunConfig[Any]:
        """Return the config of a long run, which has to be stopped after `length` steps.

        `data` is used by algorithms that take any. A run that is not evaluated has no environment, unless it learns in it:
        that is then evaluated only when it stops, by one episode.
        """
        spec = get_spec(self.algo)
        kwargs: dict[str, Any] = {"dataset": str(data)} if spec.takes_data else {}
        kwargs |= (
            {"learning_starts": min(_LEARNING_STARTS, self.length // 10)} if spec.online else {"validation": {"fraction": 0}}
        )
        budget = max(_LONG, self.length)
        env: dict[str, Any] = {"env_id": self.env, "env_kwargs": self.env_kwargs, "env_imports": self.env_imports}
        env |= {"workers": self.workers, "eval_mode": self.eval_mode}
        return self.config(
            spec.id,
            **(env if evaluated or spec.online else {}),
            total_timesteps=budget,
            eval_interval=EVAL_INTERVAL if evaluated else budget,
            eval_episodes=EVAL_EPISODES if evaluated else 1,
            checkpoint_interval=100_000,
            log_interval=log_interval or max(1, min(5_000, self.length // _ROWS_PER_RUN)),
            algo_kwargs=kwargs,
        )
