"""CUDA graphs: a block of gradient steps is captured once and then replayed."""

from collections.abc import Callable

import torch

from rl_training.algorithms.learner import Metrics


def captured(block: Callable[[], Metrics], device: torch.device) -> Callable[[], Metrics]:
    """Return a function that replays what `block` launches; its metrics are copied, because the next replay overwrites them.

    The caller keeps alive what the graph reads and writes.
    """
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        block()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # thread_local, because another thread may be copying rows to the device, which must not fail the capture
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        metrics = block()

    def replay() -> Metrics:
        graph.replay()
        return {name: value.clone() for name, value in metrics.items()}

    return replay
