"""Sends rows to one backend from a thread of its own, so that no run waits for a network."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from rl_training.faults import fault_point
from rl_training.tracking.subject import Row, Sink


class Sender:
    """Opens a backend and sends it rows, in order, until `finish` or the first error, after which it takes no more."""

    def __init__(self, name: str, open_sink: Callable[[], Sink]) -> None:
        self.name, self._open = name, open_sink
        self.error: BaseException | None = None
        self.where: str | None = None  # once it is open
        self._queue: SimpleQueue[list[Row] | bool] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"log-{name}", daemon=True)
        self._thread.start()

    def send(self, rows: list[Row]) -> None:
        """Have rows sent; returns at once."""
        self._queue.put(rows)

    def finish(self, *, finished: bool) -> None:
        """Have the backend closed once all rows are sent; returns at once."""
        self._queue.put(finished)

    def wait(self, seconds: float) -> bool:
        """Return whether it ended, waiting so long at most."""
        self._thread.join(max(seconds, 0.0))
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            sink = self._open()
            self.where = sink.where
            while not isinstance(given := self._queue.get(), bool):
                sink.send(given)
                fault_point(f"tracking:{self.name}:sent")
            sink.close(finished=given)
        except BaseException as error:  # whatever a library raises, the run goes on
            self.error = error
