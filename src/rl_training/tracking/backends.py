"""The backends by name; a library is imported when its name is used."""

import os
from collections.abc import Callable

from rl_training.errors import ConfigError
from rl_training.tracking.subject import Sink, Subject

Open = Callable[[Subject], Sink]


def backend(name: str) -> Open:
    """Return the function that opens a backend; a ConfigError if its library is missing, or cannot work as it is set up."""
    try:
        return _BACKENDS[name]()
    except ImportError as error:
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({error})"
        raise ConfigError(f'--log {name}: {error.name or name} {why}: pip install "rl-training[{name}]"') from None


def _tensorboard() -> Open:
    from rl_training.tracking.tensorboard import TensorBoardSink

    return TensorBoardSink


def _wandb() -> Open:
    from rl_training.tracking.wandb import WandbSink, require_login

    require_login()
    return WandbSink


def _mlflow() -> Open:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read at import: who logs to a server told no one else
    from rl_training.tracking.mlflow import MlflowSink

    return MlflowSink


def _trackio() -> Open:
    from rl_training.tracking.trackio import TrackioSink

    return TrackioSink


_BACKENDS: dict[str, Callable[[], Open]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
}
