"""Several server processes on one address: started together, restarted when one dies, stopped together."""

import contextlib
import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from nunatak.settings import SettingsError

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1  # before a worker that died is restarted; doubled each time
MAX_PAUSE_SECONDS = 5.0
STEADY_SECONDS = 30.0  # a worker that lived this long did not die of its start
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# Forked, not spawned: a worker starts at once, and modules are imported only once. The parent has no threads and no
# event loop that a fork could break.
_processes = multiprocessing.get_context("fork")


class Lifeline:
    """A worker's pipe to its parent: reports that the worker serves, and becomes readable when the parent is gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ready(self) -> None:
        with contextlib.suppress(OSError):  # the parent is gone, and the worker will notice soon
            self._connection.send(None)

    def fileno(self) -> int:
        return self._connection.fileno()


Work = Callable[[int, Lifeline], None]


@dataclass
class _Worker:
    number: int
    process: multiprocessing.process.BaseProcess
    connection: Connection
    began: float
    pause: float
    is_ready: bool = False


class Workers:
    """Runs `work` in `count` processes until SIGTERM or Ctrl-C; only the first start may fail, later ones are retried.

    `work` gets its number and its Lifeline. It must end by itself on SIGTERM, and when its parent is gone.
    """

    def __init__(self, work: Work, count: int, drain_seconds: float) -> None:
        self._work = work
        self._count = count
        self._drain_seconds = drain_seconds
        self._workers: dict[int, _Worker] = {}
        self._due: dict[int, tuple[float, float]] = {}  # number: when to restart, and the next pause

    def run(self, all_ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Calls `all_ready` once, when every worker serves for the first time, and `stopping` before stopping them."""
        with _signals() as signalled:
            try:
                for number in range(self._count):
                    self._begin(number, FIRST_PAUSE_SECONDS)
                self._watch(signalled, all_ready)
            finally:
                stopping()
                self._end()

    def _watch(self, signalled: socket.socket, all_ready: Callable[[], None]) -> None:
        announced = False
        while True:
            lines = [worker.connection for worker in self._workers.values()]
            for line in wait([signalled, *lines], timeout=self._seconds_until_due()):
                if line is signalled:
                    return
                self._hear(next(each for each in self._workers.values() if each.connection is line), announced)
            if not announced and all(worker.is_ready for worker in self._workers.values()):
                announced = True
                all_ready()
            for number, (due, pause) in list(self._due.items()):
                if due <= time.monotonic():
                    del self._due[number]
                    self._begin(number, pause)

    def _hear(self, worker: _Worker, announced: bool) -> None:
        """Handles a message of a worker: it serves, it reports why it cannot, or (end of file) it is gone."""
        try:
            said: str | None = worker.connection.recv()
        except (EOFError, OSError):
            said = None
        else:
            if said is None:
                worker.is_ready = True
                return
        worker.process.join()
        why = said or f"it ended with status {worker.process.exitcode}"
        self._forget(worker)
        if not announced:
            raise SettingsError(said or f"worker {worker.number} could not start: {why}")
        log.error("worker %d (process %d) ended and is restarted: %s", worker.number, worker.process.pid, why)
        pause = FIRST_PAUSE_SECONDS if time.monotonic() - worker.began > STEADY_SECONDS else worker.pause
        self._due[worker.number] = (time.monotonic() + pause, min(2 * pause, MAX_PAUSE_SECONDS))

    def _seconds_until_due(self) -> float | None:
        if not self._due:
            return None
        return max(0.0, min(due for due, _ in self._due.values()) - time.monotonic())

    def _begin(self, number: int, pause: float) -> None:
        ours, theirs = _processes.Pipe()
        # No other worker may hold this end of the pipe, or the worker would get no end of file when the parent is gone.
        inherited = [ours, *(worker.connection for worker in self._workers.values())]
        process = _processes.Process(
            target=_work, args=(self._work, number, theirs, inherited), name=f"worker {number}"
        )
        process.start()
        theirs.close()
        self._workers[number] = _Worker(number, process, ours, time.monotonic(), pause)

    def _forget(self, worker: _Worker) -> None:
        worker.connection.close()
        del self._workers[worker.number]

    def _end(self) -> None:
        for worker in self._workers.values():
            worker.process.terminate()
        deadline = time.monotonic() + self._drain_seconds
        for worker in list(self._workers.values()):
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                log.error("worker %d did not stop in time and is killed", worker.number)
                worker.process.kill()
                worker.process.join()
            self._forget(worker)


def _work(work: Work, number: int, connection: Connection, inherited: list[Connection]) -> None:
    """The main function of a worker process."""
    # The fork inherits the parent's signal handling, which must not act on the worker's signals.
    signal.set_wakeup_fd(-1)
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    for line in inherited:
        line.close()
    try:
        work(number, Lifeline(connection))
    except SettingsError as error:
        connection.send(str(error))


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yields a socket that becomes readable when a stop signal arrives."""
    readable, written = socket.socketpair()
    with readable, written:
        written.setblocking(False)
        # The handlers do nothing, but must exist: Python writes only handled signals to the wakeup fd.
        earlier = {each: signal.signal(each, lambda *_: None) for each in STOP_SIGNALS}
        wakeup = signal.set_wakeup_fd(written.fileno())
        try:
            yield readable
        finally:
            signal.set_wakeup_fd(wakeup)
            for each, handler in earlier.items():
                signal.signal(each, handler)
