"""Evaluation: all episodes of all members side by side, with the returns that each episode has alone."""

import gymnasium
import numpy as np
import pytest
import torch

from rl_training.algorithms.iql import IQL
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import infer_env_spaces, make_env, reset_env, reset_seeds, step_env
from rl_training.envs.evaluation import TRAINING_EPISODES, evaluate_policy
from rl_training.models import MLPIQLModel

MEMBERS, EPISODES = (0, 7), 10


class Walk(gymnasium.Env):
    """A walk that ends truly at a distance which its seed decides, or by its time limit."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.end = 0.0, float(self.np_random.uniform(1.0, 12.0))
        return self._seen(), {}

    def step(self, action):
        self.place += 0.5 + 0.3 * float(action[0])
        return self._seen(), -abs(self.place - 4.0), self.place >= self.end, False, {}

    def _seen(self):
        return np.array([self.place, self.end], dtype=np.float32)


@pytest.fixture
def env_id():
    gymnasium.register("Walk-v0", entry_point=Walk, max_episode_steps=15)
    yield "Walk-v0"
    del gymnasium.registry["Walk-v0"]


def alone(learner, env_id, member, episode, transforms, spaces):
    """Return and length of one episode in an environment of its own; its policy sees nothing of the other episodes."""
    env = make_env(env_id)
    observation = reset_env(env, env_id, reset_seeds(MEMBERS[member], "evaluation", 0, EPISODES)[episode])
    total, length, ended = 0.0, 0, False
    while not ended:
        seen = torch.zeros(len(MEMBERS), EPISODES, learner.model.observation_dim)  # the last bit of a product knows its shape
        seen[member, episode] = torch.from_numpy(transforms.observations(observation.astype(np.float32)))
        action = learner.act(seen, deterministic=True)[member, episode].numpy()
        observation, reward, terminal, timeout = step_env(env, env_id, spaces.denormalize_actions(action))
        total, length, ended = total + reward, length + 1, terminal or timeout
    env.close()
    return total, length


@pytest.mark.parametrize("name", ["Pendulum-v1", "Walk-v0"])
def test_side_by_side_is_one_by_one_with_one_call_of_the_policy_per_step(name, env_id, monkeypatch):
    spaces = infer_env_spaces(name)
    learner = IQL(MLPIQLModel(spaces.observation_dim, 1, seeds=MEMBERS, hidden_sizes=(32, 32)))
    transforms = Transforms(
        np.full(spaces.observation_dim, 0.3, np.float32), np.full(spaces.observation_dim, 1.7, np.float32)
    )
    calls, act = [], learner.act
    monkeypatch.setattr(learner, "act", lambda seen, **how: (calls.append(tuple(seen.shape)), act(seen, **how))[1])
    found = evaluate_policy(learner, name, episodes=EPISODES, seeds=MEMBERS, transforms=transforms)
    assert calls == [(len(MEMBERS), EPISODES, spaces.observation_dim)] * int(found.lengths.max())
    for member in range(len(MEMBERS)):
        for episode in range(EPISODES):
            expected = alone(learner, name, member, episode, transforms, spaces)
            assert (found.returns[member, episode], found.lengths[member, episode]) == expected
    if name == env_id:
        assert len(set(found.lengths.ravel())) > 4  # some end early, some by the time limit
        assert found.lengths.max() == 15


def test_final_figures_are_measured_on_other_episodes_than_training_looked_at(finished):
    from rl_training.api.policy import Policy

    result = finished()
    policy = Policy.load(result.run_dir, device="cpu")
    assert policy.learner.step == result.step
    final = policy.evaluate(2)
    assert not set(final.returns.flatten()) & set(result.evaluation.returns.flatten())
    again = {"episodes": 2, "seeds": [0], "transforms": policy.transforms}
    seen = evaluate_policy(policy.learner, "Pendulum-v1", **again, stream=TRAINING_EPISODES)
    assert seen.returns.tolist() == result.evaluation.returns.tolist()
    assert policy.evaluate(2, seed=0).returns.tolist() == final.returns.tolist()
