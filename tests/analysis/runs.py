"""Run directories as training leaves them, written by hand: their scores are known."""

import json

from rl_training.analysis.logged_run import RETURN, RETURN_STD
from rl_training.config.loading import make_config


def write_run(
    folder, returns, algo="iql", *, seeds=None, steps=100, status="finished", data="d1", events=(), spread=None, **config
):
    """A run with one row of `returns` for each evaluation and one column for each member; returns its directory.

    None is a member without that evaluation; `events` are (event, member); `spread` is the deviation of all episodes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    members = range(len(returns[-1]) if returns else 1)
    values = {"algo": algo, "env_id": "Pendulum-v1", "total_timesteps": steps, "algo_kwargs": {"dataset": "random"}, **config}
    values["seeds"] = list(seeds or range(len(members)))
    resolved = make_config(values, "x")
    (folder / "config.yaml").write_text(resolved.to_yaml())
    record = {"status": status, "versions": {"rl_training": "0.1.0"}, "phases": [], "dataset": {"fingerprint": data}}
    (folder / "run.json").write_text(json.dumps(record))
    rows = [{"step": 1, "member": k, "seed": resolved.member_seeds[k], "train/loss": 1.0 + k} for k in members]
    for number, evaluation in enumerate(returns, start=1):
        at = steps * number // len(returns)
        rows += [
            {"step": at, "member": k, "seed": resolved.member_seeds[k], RETURN: value}
            | ({} if spread is None else {RETURN_STD: spread})
            for k, value in zip(members, evaluation, strict=True)
            if value is not None
        ]
    rows += [{"step": steps, "member": k, "seed": resolved.member_seeds[k], "event": event} for event, k in events]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
