"""Evaluations during training, in copies of the environment that are kept from one to the next."""

from collections.abc import Callable
from typing import Any

from rl_training.algorithms.learner import Learner
from rl_training.config.environment import EnvSource
from rl_training.config.run import RunConfig
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import EnvBatch
from rl_training.envs.evaluation import Evaluation, evaluate_policy
from rl_training.envs.workers.count import open_batch


class Evaluator:
    """Evaluates a learner in its environments; the copies of one are made at its first evaluation."""

    def __init__(self, config: RunConfig[Any], learner: Learner[Any, Any], spaces: Spaces, transforms: Transforms) -> None:
        self._config, self._learner, self._spaces, self._transforms = config, learner, spaces, transforms
        self._copies: EnvBatch | None = None

    def evaluate(self, env: EnvSource, stream: str, check: Callable[[], None]) -> Evaluation:
        """Return the evaluation of every member; `check` is called at every step and may raise to stop."""
        config = self._config
        if self._copies is None or self._copies.env is not env:
            self.close()
            count = self._learner.model.members * config.eval_episodes
            self._copies = open_batch(env, count, config.workers, config.env_timeout)
        return evaluate_policy(
            self._learner,
            env,
            episodes=config.eval_episodes,
            seeds=self._learner.model.seeds,
            transforms=self._transforms,
            spaces=self._spaces,
            stream=stream,
            check=check,
            kept=self._copies,
        )

    def close(self) -> None:
        """Close the copies."""
        if self._copies is not None:
            self._copies.close()
            self._copies = None
