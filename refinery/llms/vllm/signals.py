"""What a process does that has loaded vLLM when it is told to stop."""

import signal
import sys
import threading


def shut_down_on_sigterm() -> None:
    """Let a SIGTERM end the process as an interrupt does, because vLLM's own processes outlive one that just dies, with the GPU's memory.

    Only the main thread can do this, and only where nothing else handles the signal.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
