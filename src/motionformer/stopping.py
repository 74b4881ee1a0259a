"""SIGTERM and SIGUSR1: a job that is asked to stop finishes its step, saves, says so, and exits with code 75.

Schedulers send them before they preempt a job or end its time. Nothing is interrupted: a handler only notes the
signal, and the job asks `is_stop_requested` where it can stop without losing anything.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from motionformer.errors import MotionformerError

EXIT_STOPPED = 75
"""Exit code of a command that a signal stopped: the same command resumes. EX_TEMPFAIL of sysexits.h."""
REQUEUE = "MOTIONFORMER_REQUEUE"
"""Environment variable of `motionformer --requeue`."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))
_watching = False
_received: signal.Signals | None = None


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Inside the block, SIGTERM and SIGUSR1 are requests to stop. In the main thread only; blocks may be nested."""
    global _watching, _received
    if _watching or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _note) for number in _SIGNALS}
    _watching = True
    try:
        yield
    finally:
        _watching, _received = False, None
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def is_stop_requested() -> bool:
    """Whether a signal has asked this process to stop."""
    return _received is not None


def stop_reason() -> str:
    """The name of the signal; of a process that another one told to stop, that."""
    return "a signal to another process" if _received is None else _received.name


def keep_from_signals(worker: int = 0) -> None:
    """In a process that decodes: leave the two signals to the parent, and end when the parent says so.

    Schedulers signal every process of a job; a loader worker that dies of it would take the job along before it has
    saved. A signal tells its sender only to a thread that waits for it.
    """
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is None or not hasattr(signal, "sigwaitinfo"):
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def wait() -> None:
        while True:
            found = signal.sigwaitinfo(_SIGNALS)
            if found.si_signo == signal.SIGTERM and found.si_pid == parent.pid:
                os._exit(0)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def requeue_job() -> str:
    """Put the SLURM job of this process back into the queue, if `motionformer --requeue` asked for it.

    Returns:
        What was done, for the user; empty where it was not asked for.

    Raises:
        MotionformerError: there is no SLURM job, or SLURM refuses.
    """
    if not os.environ.get(REQUEUE):
        return ""
    job = os.environ.get("SLURM_JOB_ID", "")
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
    if not re.fullmatch(r"\d+(_\d+)?", job):
        raise MotionformerError("--requeue: this is no SLURM job (SLURM_JOB_ID is not set); nothing was requeued.")
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MotionformerError(f"--requeue: `scontrol requeue {job}` failed ({error}).") from error
    if done.returncode:
        raise MotionformerError(f"--requeue: `scontrol requeue {job}` failed ({done.stderr.strip()}).")
    return f" SLURM job {job} is back in the queue."


def _note(number: int, frame: FrameType | None) -> None:
    global _received
    if _received is None:
        _received = signal.Signals(number)
