"""The lock of a run's directory: only one process at a time works there, also of those on several machines with one file system."""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from refinery.errors import RunDirError

LOCK_FILE, PENDING_FILE = "run.lock", "run.json.pending"
_log = logging.getLogger(__name__)


@contextmanager
def locked_run(output_dir: Path, *, wait: bool = False, named_by: str = "output_dir") -> Generator[None]:
    """Lock the directory, which `named_by` chose, against others. It is created if needed, and removed again if nothing was written to it.

    Raises RunDirError when the directory cannot be created, or another process holds the lock, unless this one is to `wait` for it.
    """
    is_new = not output_dir.exists()
    lock = _take_lock(output_dir, wait=wait, named_by=named_by)
    try:
        yield
    finally:
        (output_dir / PENDING_FILE).unlink(missing_ok=True)  # of a run that wrote nothing
        (output_dir / LOCK_FILE).unlink(missing_ok=True)  # before unlocking, so that processes waiting for this file notice that it is gone
        os.close(lock)
        if is_new:
            with suppress(OSError):
                output_dir.rmdir()


def _take_lock(output_dir: Path, *, wait: bool, named_by: str) -> int:
    path = output_dir / LOCK_FILE
    while True:
        try:
            output_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise RunDirError(f"{output_dir}: cannot be used as a run directory ({error.strerror}). Choose another {named_by}.") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(lock)
            raise RunDirError(
                f"{output_dir}: another process is working on this run. Wait until it has ended, or choose another {named_by}."
            ) from None
        except OSError as error:
            _log.warning("%s: this file system has no locks (%s). Start one process at a time.", output_dir, error.strerror)
            return lock
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)  # of a process that has just ended and removed the file


def is_locked(output_dir: Path) -> bool:
    """Whether a process works in the directory, or a file server still believes so of a machine that it has lost."""
    try:
        with (output_dir / LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or a file system without locks
        return False
    return False
