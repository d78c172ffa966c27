"""`refinery serve` beside `transformers serve` (transformers' extra `serving`): the same model, prompts and greedy replies, in turns.

python -m benchmarks.infer.serving runs/real/base --clients 1 8 32

Each client asks one question at a time. `tokens_per_second` is by wall time, which other work disturbs; `cpu_ms_per_token` is the
server's own processor time. The ratios are ours over theirs, of the medians: above 1 and below 1 are better.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import yaml

from refinery.prompts.render import render_prompt
from refinery.runtime.http_checks import listen

_TOPICS = ("a river", "a bridge", "the sea", "a library", "an old map", "winter", "a clockmaker", "bees")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, the name of its model, and how it is asked: ours renders the prompt of `direct` itself."""

    process: psutil.Process
    url: str
    model: str
    message: Callable[[str], str]

    def answer(self, question: str, tokens: int) -> int:
        """Ask for a reply of at most so many tokens; returns how many it has."""
        body = {"model": self.model, "messages": [{"role": "user", "content": self.message(question)}], "max_tokens": tokens}
        request = urllib.request.Request(f"{self.url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)["usage"]["completion_tokens"]

    def measure(self, clients: int, *, tokens: int, questions: int) -> tuple[float, float]:
        """Tokens a second of all clients together, and milliseconds of processor time a token."""
        asked = [f"Tell me in twenty sentences about {_TOPICS[n % len(_TOPICS)]}, part {n}." for n in range(clients * questions)]
        began, before = time.perf_counter(), sum(self.process.cpu_times()[:2])
        with ThreadPoolExecutor(clients) as pool:
            written = sum(pool.map(lambda question: self.answer(question, tokens), asked))
        used = sum(self.process.cpu_times()[:2]) - before
        return written / (time.perf_counter() - began), 1000 * used / written


def compare(checkpoint: str, *, clients: Sequence[int], tokens: int, rounds: int) -> dict[str, Any]:
    """The figures for each number of clients. The first round warms both servers up and does not count."""
    with _ours(checkpoint, tokens) as ours, transformers_server(checkpoint) as theirs:
        figures: dict[str, Any] = {}
        for count in clients:
            found: dict[str, list[tuple[float, float]]] = {"refinery": [], "transformers": []}
            for _ in range(rounds + 1):
                for name, server in (("refinery", ours), ("transformers", theirs)):
                    found[name].append(server.measure(count, tokens=tokens, questions=2 if count == 1 else 1))
            figures[f"clients_{count}"] = _figures({name: turns[1:] for name, turns in found.items()})
        return figures


def _figures(turns: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for place, unit in enumerate(("tokens_per_second", "cpu_ms_per_token")):
        ours, theirs = (median(turn[place] for turn in turns[name]) for name in ("refinery", "transformers"))
        figures |= {unit: {"refinery": round(ours, 1), "transformers": round(theirs, 1), "ratio": round(ours / theirs, 3)}}
    return figures


@contextlib.contextmanager
def _ours(checkpoint: str, tokens: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "serving.yaml"
        recipe.write_text(yaml.safe_dump({"decoder": "direct", "llm": {"base": str(Path(checkpoint).resolve())}, "max_new_tokens": tokens}))
        with _started([sys.executable, "-c", "from refinery.cli import main; main()", "serve", str(recipe)]) as (process, url):
            yield Server(process, url, "direct", str)


@contextlib.contextmanager
def transformers_server(checkpoint: str) -> Iterator[Server]:
    """`transformers serve` with a checkpoint in float32 on the CPU."""
    command = [str(Path(sys.executable).with_name("transformers")), "serve", checkpoint, "--device", "cpu", "--dtype", "float32"]
    with _started([*command, "--host", "127.0.0.1"]) as (process, url):
        yield Server(process, url, checkpoint, lambda question: str(render_prompt("answer_direct", question=question)))


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator[tuple[psutil.Process, str]]:
    """A server's process and address, once it is well. It is stopped at the end."""
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as log:
        (Path(home) / "hub").mkdir()  # transformers' server lists what is cached there
        environment = os.environ | {"HF_HOME": home, "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen([*command, "--port", str(port)], env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            while not _is_well(f"http://127.0.0.1:{port}/health"):
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{command[0]} ended: {log.read().decode()[-500:]}")
                time.sleep(0.5)
            yield psutil.Process(process.pid), f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait()


def _is_well(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="a folder")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of a reply")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args(argv)
    figures = compare(arguments.checkpoint, clients=arguments.clients, tokens=arguments.tokens, rounds=arguments.rounds)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
