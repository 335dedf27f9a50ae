"""The managed classes, one per algorithm."""

from rl_training.api.managed import ManagedAlgorithm


class IQL(ManagedAlgorithm):
    """Implicit Q-learning, managed: `IQL("Pendulum-v1", dataset={"kind": "random"}).learn(20_000).evaluate()`."""

    algo = "iql"


class XQL(ManagedAlgorithm):
    """Extreme Q-learning, managed: `XQL("Pendulum-v1", dataset={"kind": "random"}).learn(20_000).evaluate()`."""

    algo = "xql"


class TD3BC(ManagedAlgorithm):
    """TD3+BC, managed: `TD3BC("Pendulum-v1", dataset="log.npz", alpha=2.5).learn(20_000).evaluate()`."""

    algo = "td3_bc"


class CQL(ManagedAlgorithm):
    """Conservative Q-learning, managed: `CQL("Pendulum-v1", dataset={"kind": "random"}).learn(10_000).evaluate()`."""

    algo = "cql"


class CalQL(ManagedAlgorithm):
    """Calibrated Q-learning, managed: `CalQL("Pendulum-v1", dataset={"kind": "random"}).learn(10_000).evaluate()`."""

    algo = "cal_ql"


class SAC(ManagedAlgorithm):
    """Soft actor-critic, managed: `SAC("Pendulum-v1").learn(10_000).evaluate()`; steps are environment steps."""

    algo = "sac"


class REDQ(ManagedAlgorithm):
    """Randomized ensembled double Q-learning, managed: `REDQ("Pendulum-v1").learn(10_000).evaluate()`."""

    algo = "redq"


class RLPD(ManagedAlgorithm):
    """RL with prior data, managed: `RLPD("Pendulum-v1", dataset="log.npz").learn(10_000).evaluate()`."""

    algo = "rlpd"
