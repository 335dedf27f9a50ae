"""A control policy from policy.npz that needs numpy alone: `Policy("policy.npz")(observation)`. See card.md."""

from typing import Any

import numpy as np

ACTIVATIONS: Any = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x**3))) / 2,
}


class Policy:
    """The policy: one observation or a batch of any size, in real units, to actions in real units."""

    def __init__(self, path: Any) -> None:
        """Read the numbers; nothing in the file is executed."""
        self.data = dict(np.load(path, allow_pickle=False))

    @np.errstate(all="ignore")
    def __call__(self, observation: Any, last_action: Any = None) -> Any:
        """Return the actions, and if the export was made with a flag also how many columns of each row were never seen."""
        data, rows = self.data, np.asarray(observation, dtype=np.float32)
        if rows.shape[-1:] != data["mean"].shape:
            raise ValueError(f"an observation has {len(data['mean'])} numbers, got an array of shape {rows.shape}")
        if last_action is None and data["uses_last"]:
            raise ValueError("pass last_action, too: what was really applied before, or NaN if that is not known")
        last = np.broadcast_to(np.asarray(last_action, dtype=np.float32), (*rows.shape[:-1], len(data["low"])))
        last = np.where(np.isfinite(last), last, np.float32(np.nan))
        good = (np.abs(rows) <= data["largest"]).all(axis=-1, keepdims=True)
        seen = np.clip((np.where(good, rows, data["mean"]) - data["mean"]) / data["std"], -data["limit"], data["limit"])
        action = self.unit(seen) @ data["place"] * data["half_range"] + data["middle"]
        good &= np.isfinite(action).all(axis=-1, keepdims=True)
        action = np.where(good, np.clip(action, data["low"], data["high"]), data.get("fallback", last))
        held = np.clip(action, last - data["change"], last + data["change"])
        action = np.clip(np.where(np.isnan(last), action, held), data["low"], data["high"])
        outside = (~((rows >= data["seen_low"]) & (rows <= data["seen_high"]))).sum(axis=-1)
        return (action, outside) if data["flag"] else action

    def unit(self, seen: Any) -> Any:
        """Return actions in [-1, 1] of normalised observations: of several candidates the one that the critics prefer."""
        if "candidates" not in self.data:
            return self.network("actor", seen)
        noise = np.broadcast_to(self.data["candidates"], (*seen.shape[:-1], *self.data["candidates"].shape))
        seen = np.broadcast_to(seen[..., None, :], (*noise.shape[:-1], seen.shape[-1]))
        actions = self.network("actor", np.concatenate((seen, noise), axis=-1))
        pairs, critics = np.concatenate((seen, actions), axis=-1), range(int(self.data["critics"]))
        values = np.min([self.network(f"critic{k}", pairs) for k in critics], axis=0)
        return np.take_along_axis(actions, values.argmax(axis=-2, keepdims=True), axis=-2)[..., 0, :]

    def network(self, name: str, x: Any) -> Any:
        """Return the outputs of a perceptron; those of the actor are actions in [-1, 1]."""
        data, norm, active = self.data, str(self.data[f"{name}.norm"]), ACTIVATIONS[str(self.data["activation"])]
        last = int(data[f"{name}.layers"]) - 1
        for k in range(last):
            x = x @ data[f"{name}.{k}.weight"] + data[f"{name}.{k}.bias"]
            x = active(x) if norm == "after" else x
            if norm != "none":
                x = x - x.mean(axis=-1, keepdims=True)
                x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + np.float32(1e-5))  # as LayerNorm of torch
                x = x * data[f"{name}.{k}.scale"] + data[f"{name}.{k}.offset"]
            x = x if norm == "after" else active(x)
        x = x @ data[f"{name}.{last}.weight"] + data[f"{name}.{last}.bias"]
        if name != "actor":
            return x
        x = x[..., : len(data["place"])]
        return np.tanh(x) if data["squashed"] else np.clip(x, -1, 1)
