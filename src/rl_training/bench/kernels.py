"""How many CUDA kernels a step takes: the profiler's count, whatever mode the engine runs in."""

from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

_NO_KERNELS = ("Memcpy", "Memset")


def kernels_per_step(run: Callable[[], None], steps: int, device: torch.device) -> float | None:
    """Return the kernels that `run` starts per step of its `steps`; None on the CPU, which has none."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize(device)
    events = profiled.events() or []
    kernels = [e for e in events if e.device_type == DeviceType.CUDA and not e.name.startswith(_NO_KERNELS)]
    return len(kernels) / steps
