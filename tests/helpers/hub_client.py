"""The stand-in as tests see it: started, asked what it holds, and the environment that points a process of its own at it."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from helpers.free_port import free_port

PROJECT = Path(__file__).parents[2]
TOKEN = "hf_aSecretOfTheStandIn"


@dataclass
class Hub:
    address: str
    folder: Path
    token: str = TOKEN

    @classmethod
    @contextmanager
    def started(cls, folder: Path) -> Iterator["Hub"]:
        """Start it on a free port, and stop it afterwards."""
        port = free_port()
        process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("hub_server.py")), str(port), TOKEN])
        hub = cls(f"http://127.0.0.1:{port}", folder)
        try:
            while process.poll() is None:
                with suppress(OSError):
                    hub.repositories()
                    break
                time.sleep(0.05)
            yield hub
        finally:
            process.terminate()
            process.wait()

    @property
    def environment(self) -> dict[str, str]:
        """What the hub's client reads when it is imported; a cache of its own, so that nothing is found that was not pulled."""
        kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
        return kept | {
            "HF_ENDPOINT": self.address,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(self.folder / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONPATH": str(PROJECT),
        }

    def run(self, *command: str, cwd: Path = PROJECT, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command, `refinery ...` or `python ...`, against the hub."""
        program = {"refinery": [sys.executable, "-m", "refinery.cli"], "python": [sys.executable]}[command[0]]
        return subprocess.run(
            [*program, *command[1:]], cwd=cwd, env=self.environment | environment, capture_output=True, text=True, check=False
        )

    def repositories(self) -> dict[str, dict]:
        """`models/owner/name` or `datasets/owner/name`: whether it is private, and the files of its branches."""
        return self._ask("GET", "/stand-in/repositories")

    def text(self, path: str) -> str:
        """A file as the hub serves it, such as `me/mine/resolve/main/README.md`."""
        return self.content(path).decode()

    def content(self, path: str) -> bytes:
        """The bytes of a file."""
        request = urllib.request.Request(f"{self.address}/{path}", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    def refuse_commits(self) -> None:
        """From now on, answer every commit with status 403."""
        self._ask("POST", "/stand-in/refuse-commits")

    def corrupt(self, path: str) -> None:
        """From now on, serve files of this name with a bit flipped."""
        self._ask("POST", f"/stand-in/corrupt/{path}")

    def heal(self) -> None:
        """Serve every file as it is again, and accept commits."""
        self._ask("POST", "/stand-in/heal")

    def _ask(self, method: str, path: str) -> dict:
        with urllib.request.urlopen(urllib.request.Request(self.address + path, method=method)) as answer:
            return json.loads(answer.read() or b"{}")
