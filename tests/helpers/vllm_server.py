"""`vllm serve` on CPU, started with the Python that REFINERY_VLLM_PYTHON names, and servers that others wrote in general."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from helpers.free_port import free_port

READY_SECONDS = 400  # vLLM takes half a minute on quiet cores


def wait_until_ready(url: str, process: subprocess.Popen, log: Path) -> None:
    """Return once the server answers; fail with its log if it ends first, or takes too long."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"the server was not ready within {READY_SECONDS} s: {log.read_text()}")


@contextmanager
def vllm_server(checkpoint: Path, folder: Path, *, name: str, length: int, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of `vllm serve` on the checkpoint, in float32 and with a context of `length` tokens. Its log is in `folder`."""
    port = free_port()
    options = {
        "--served-model-name": name,
        "--dtype": "float32",
        "--max-model-len": str(length),
        "--host": "127.0.0.1",
        "--port": str(port),
    }
    flags = ["--enforce-eager", "--enable-prompt-tokens-details"]
    command = [os.environ["REFINERY_VLLM_PYTHON"], "-m", "vllm.entrypoints.cli.main", "serve", str(checkpoint), *flags]
    command += [word for option in options.items() for word in option]
    cpu = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=inherited | cpu | (environment or {}), cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/health", process, folder / "server.log")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
