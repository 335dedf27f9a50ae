"""The number of CUDA kernels per step, counted by the profiler in any mode."""

from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

_NOT_KERNELS = ("Memcpy", "Memset")


def kernels_per_step(run: Callable[[], None], steps: int, device: torch.device) -> float | None:
    """Return the kernels per step that `run`, which takes `steps` steps, launches; None on the CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize(device)
    events = profiled.events() or []
    kernels = [e for e in events if e.device_type == DeviceType.CUDA and not e.name.startswith(_NOT_KERNELS)]
    return len(kernels) / steps
