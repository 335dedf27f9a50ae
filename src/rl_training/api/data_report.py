"""What the policies of a run do on logged data: the report of `rl-training evaluate RUN --data PATH`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.api.policy import Policy
from rl_training.config.blocks import VALIDATION_ROWS, ReadConfig
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_blocks import blocks, spread_evenly
from rl_training.data.row_view import RowView
from rl_training.errors import ConfigError, DatasetError
from rl_training.runtime.offline_data import build_offline_dataset
from rl_training.runtime.validating.concerns import concerns
from rl_training.runtime.validating.policy_check import LoggedRows, LoggedStarts, PolicyCheck, ReturnLimits

_LOOKED_FOR, _SEEN = 1000, 0.1  # rows that are looked for, and the share of them that is no coincidence
TRAINED_ON = "the data of the training"
_OWN = {"action_low", "action_high", "member"}  # bounds are those of the policy, and other data has other members
_READ_ALIKE = [name for name in ReadConfig.model_fields if name not in _OWN]


def load_like_training(policy: Policy, source: Any, **options: Any) -> TransitionDataset:
    """Return a dataset read as that of the run was, a table with its column map; `options` of a reader replace its own."""
    if isinstance(source, TransitionDataset):
        return source
    parts = [part for part in getattr(policy.config.algo_kwargs, "dataset", ()) if part.path is not None]
    known = {name: getattr(parts[0], name) for name in _READ_ALIKE} if parts else {}
    if "columns" in options or known.get("columns") is None:
        return load_dataset(source, **{**known, **options})
    try:
        return load_dataset(source, **{**known, **options})
    except ConfigError:  # the run's data was a table, this is not
        return load_dataset(source, **{**known, **options, "columns": None})
    except DatasetError as error:
        raise DatasetError(f"{error} (read with the column map of the training; --columns names another)") from None


def dataset_of(policy: Policy, data: Any = None, **options: Any) -> tuple[TransitionDataset | None, str]:
    """Return the data that is asked for, or that of the run if it is still the same, None otherwise; and what it is."""
    if data is not None:
        dataset = load_like_training(policy, data, **options)
        own = trained_on(policy, dataset)
        return dataset, TRAINED_ON if own else f"other data than that of the training, {data}"
    kwargs = policy.config.algo_kwargs
    if not getattr(kwargs, "dataset", None):
        return None, "the run had no data"
    try:
        dataset = build_offline_dataset(policy.config, lambda: None)
    except (ConfigError, DatasetError):  # moved since
        return None, "the data of the run is not there"
    own_file = getattr(getattr(kwargs, "validation", None), "path", None)  # is part of what was written down
    if _known(policy) is not None and own_file is None and not trained_on(policy, dataset):
        return None, "the data of the run has changed since the training"
    return dataset, TRAINED_ON


def trained_on(policy: Policy, data: TransitionDataset) -> bool:
    """Return whether a policy is known to have been trained on exactly this data, a part that was held out included."""
    return data.fingerprint == _known(policy)


def rows_trained_on(policy: Policy, data: TransitionDataset) -> bool | None:
    """Return whether a policy was trained on rows of this data; None where the data of the training is not there to compare.

    Some rows are looked for among all those of the training, a file among several that were read together, too.
    """
    if trained_on(policy, data):
        return True
    parts = getattr(policy.config.algo_kwargs, "dataset", ())
    if _known(policy) is None or any(part.path is None for part in parts):
        return None
    own, _ = dataset_of(policy)
    if own is None or (own.observation_dim, own.action_dim) != (data.observation_dim, data.action_dim):
        return None
    wanted = _row_keys(data, spread_evenly(len(data), _LOOKED_FOR))
    found = np.zeros(len(wanted), dtype=bool)
    for part in blocks(len(own)):
        found |= np.isin(wanted, _row_keys(own, part))
    return bool(found.mean() > _SEEN)


def _row_keys(data: TransitionDataset, rows: Any) -> NDArray[np.void]:
    """Rows as bytes: equal exactly for equal observations, actions and rewards."""
    fields = (data.observations[rows], data.actions[rows], np.asarray(data.rewards[rows])[:, None])
    joined = np.ascontiguousarray(np.concatenate([np.asarray(field, dtype=np.float64) for field in fields], axis=1) + 0.0)
    return joined.view(np.dtype((np.void, joined.dtype.itemsize * joined.shape[1])))[:, 0]


def _known(policy: Policy) -> str | None:
    """The fingerprint of the data of the training, where it is known."""
    return None if policy.checkpoint is None else policy.checkpoint.state.get("dataset_fingerprint")


def check_columns(policy: Policy, data: TransitionDataset) -> None:
    """Refuse data whose observations or actions are not those of a policy."""
    spaces = policy.spaces
    if (data.observation_dim, data.action_dim) != (spaces.observation_dim, spaces.action_dim):
        raise DatasetError(
            f"the data has {data.observation_dim} observations and {data.action_dim} actions, "
            f"the policy {spaces.observation_dim} and {spaces.action_dim}"
        )
    for own, other in ((spaces.observation_names, data.observation_names), (spaces.action_names, data.action_names)):
        if own and other and own != other:
            raise DatasetError(f"the columns of the data are {', '.join(other)}, those of the policy {', '.join(own)}")


def data_report(policy: Policy, data: TransitionDataset, rows: int = VALIDATION_ROWS) -> dict[str, Any]:
    """Return for each member the figures of `PolicyCheck.figures` on logged data, and what is doubtful about them."""
    check_columns(policy, data)
    view, logged = RowView(data), LoggedRows.raw(data, rows, policy.spaces, policy.transforms)
    check = PolicyCheck(logged, ReturnLimits.of(view), LoggedStarts.of(view, policy.transforms))
    members = [
        {
            "member": number,
            "seed": policy.members[number].seed,
            "figures": figures,
            "concerns": [{"code": one.code, "text": one.text} for one in concerns(figures, policy.learner.knobs)],
        }
        for number, figures in enumerate(check.figures(policy.learner))
    ]
    known = {"algo": policy.config.algo, "step": policy.learner.step, "trained_on": rows_trained_on(policy, data)}
    return {**known, "rows": len(check), "members": members}
