"""Record a reference from the TD3 author's code: `python -m tools.references.td3 CHECKOUT`, of sfujim/TD3."""

from types import SimpleNamespace
from typing import Any

import torch

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.torch_code import Named, Run, View, ensemble, linears, perceptron, redraw, small_networks

KNOBS = {"gamma": 0.9, "tau": 0.05, "target_noise": 0.4, "target_noise_clip": 0.5, "actor_interval": 2}
RATE = 3e-4  # fixed in the code


def td3(source: Source) -> Recording:
    """TD3."""
    return record(source, "td3", "TD3.py", KNOBS)


def record(source: Source, algorithm: str, file: str, knobs: dict[str, Any]) -> Recording:
    """Record the class of a file by the file's name, whose policy's loss uses the critics after their update.

    `knobs` are in the order of its arguments.
    """
    rates = {"actor_learning_rate": RATE, "critic_learning_rate": RATE}
    recording = Recording(
        *(algorithm, "official", source, file, knobs | rates, {"hidden_sizes": [WIDTH, WIDTH]}),
        alignment={"order": [["critic"], ["actor"]]},
    )
    module = source.module(file)
    module.device = torch.device("cpu")
    with small_networks():
        learner = getattr(module, file.removesuffix(".py"))(OBSERVATION_DIM, ACTION_DIM, 1.0, *knobs.values())
    redraw(recording, learner.actor, learner.critic, learner.actor_target, learner.critic_target)
    run = Run(
        *(recording, [learner.actor_optimizer, learner.critic_optimizer], ["critic_loss", "actor_loss"]),
        *(_named(learner.critic, learner.actor), _named(learner.critic_target, learner.actor_target)),
    )

    def update(step: int) -> None:
        run.normals(step, "target_noise", ROWS, ACTION_DIM)
        batch = run.batch(step)
        fields = [batch[name] for name in ("observations", "actions", "next_observations", "rewards")]
        learner.train(SimpleNamespace(sample=lambda _size: (*fields, 1.0 - batch["terminals"])))

    return run(update)


def _named(twins: Any, actor: Any) -> Named:
    """Our names for both critics, which are one module, and the policy."""

    def parameters(view: View) -> dict[str, torch.Tensor]:
        layers = linears(twins)
        return ensemble("critic", [layers[:3], layers[3:]], view) | perceptron("actor", linears(actor), view)

    return parameters


if __name__ == "__main__":
    main("sfujim/TD3", [td3], {"torch": torch.__version__})
