"""`python -m benchmarks.distill --peers`: the engine and its peers in turns against the same mock endpoint, line by line.

Every measurement is a separate process. Ideal time is rows x latency / calls in flight. Seconds count from the first row to the files on
disk, after one row that pays for imports; CPU time is that of the whole process and its children, imports included.

- `share_of_ideal_c64`, `share_of_ideal_c256`: ideal time over seconds at 64 and 256 calls in flight (four times the rows at 256).
- `storm_ratio`: seconds over ideal time for 64 calls in flight to an endpoint that accepts 16 and answers others with 429 (a quarter of
  the rows).
- `process_cpu_ms_per_call`: at 64 calls in flight.
- `cpu_seconds_to_first_call`: until the first chat request arrives.
- `rows_kept`: the share of labeled rows among those that the endpoint answers, where it refuses 1.3 % of the prompts with 400.
"""

import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from benchmarks.distill.endpoint import Settings, refuses
from benchmarks.distill.peers.find import Peer, find_peers
from benchmarks.distill.run import COMMAND, LATENCY, Bench, cpu_of_children, endpoint, with_bytecode, write_questions
from refinery.prompts.render import render_prompt
from refinery.version import __version__

OURS = "refinery"
_REFUSED_SHARE = 0.013
_ACCEPTED = 16
_HIGHER_IS_BETTER = ("share_of_ideal_c64", "share_of_ideal_c256", "rows_kept")
_DRIVER = Path(__file__).with_name("peers") / "driver.py"


class Failed(Exception):
    """A measurement that a peer did not finish, with the reason."""


class Side(Protocol):
    """A side of the comparison: the engine or a peer."""

    version: str

    def command(self, rows: int, url: str, *, calls: int, timed: bool) -> list[str]:
        """The command that labels `rows` rows. With `timed`, its last line is JSON with `rows` and `seconds`."""
        ...


def compare(named: str, *, rows: int, repeats: int) -> dict[str, Any]:
    """Medians per side and line, and the ratios in our favor; null, with a line in `faults`, if a side did not finish.

    `named` is described at `find_peers`.
    """
    peers = find_peers(named)
    with tempfile.TemporaryDirectory() as folder, with_bytecode():
        sides: dict[str, Side] = {OURS: _Engine(Path(folder)), **{peer.name: _Driven(peer, Path(folder)) for peer in peers}}
        figures: dict[str, dict[str, list[float | None]]] = {name: {line: [] for line in _LINES} for name in sides}
        faults: dict[str, str] = {}
        for repeat in range(repeats):
            for line, name in _turns(list(sides), repeat):
                figures[name][line].append(_measured(line, name, sides[name], rows, faults))
        medians = {name: {line: _median(values) for line, values in lines.items()} for name, lines in figures.items()}
        return {
            "rows": rows,
            "repeats": repeats,
            "versions": {name: side.version for name, side in sides.items()},
            "medians": medians,
            "times_better_than": {peer.name: _times_better(medians[OURS], medians[peer.name]) for peer in peers},
            "faults": faults,
        }


def _turns(names: Sequence[str], repeat: int) -> Iterator[tuple[str, str]]:
    """Each line for all sides, one after another, so that they share the machine's state; each repetition begins with another side."""
    start = repeat % len(names)
    for line in _LINES:
        yield from ((line, name) for name in (*names[start:], *names[:start]))


def _measured(line: str, name: str, side: Side, rows: int, faults: dict[str, str]) -> float | None:
    try:
        return _LINES[line](side, rows)
    except Failed as error:
        faults[f"{name} {line}"] = str(error)
        return None


def _median(values: Sequence[float | None]) -> float | None:
    """The median; None if a repetition did not finish."""
    finished = [value for value in values if value is not None]
    return round(statistics.median(finished), 3) if len(finished) == len(values) else None


def _times_better(ours: dict[str, float | None], theirs: dict[str, float | None]) -> dict[str, float | None]:
    return {line: _ratio(ours[line], theirs[line]) if line in _HIGHER_IS_BETTER else _ratio(theirs[line], ours[line]) for line in _LINES}


def _ratio(over: float | None, under: float | None) -> float | None:
    return round(over / under, 3) if over is not None and under else None


def _share_of_ideal(side: Side, rows: int, calls: int) -> float:
    ideal = rows * LATENCY / calls
    with endpoint(Settings(latency_seconds=LATENCY)) as url:
        return ideal / _seconds(side, rows, url, calls, ideal)


def _storm(side: Side, rows: int) -> float:
    ideal = rows * LATENCY / _ACCEPTED
    with endpoint(Settings(latency_seconds=LATENCY, max_in_flight=_ACCEPTED)) as url:
        return _seconds(side, rows, url, 64, ideal) / ideal


def _seconds(side: Side, rows: int, url: str, calls: int, ideal: float) -> float:
    told = _told(side.command(rows, url, calls=calls, timed=True), ideal)
    if told["rows"] != rows:
        raise Failed(f"kept {told['rows']} of {rows} rows")
    return told["seconds"]


def _process_cpu(side: Side, rows: int) -> float:
    with endpoint(Settings(latency_seconds=LATENCY)) as url:
        command, before = side.command(rows, url, calls=64, timed=False), cpu_of_children()
        _run(command, rows * LATENCY / 64)
        return (cpu_of_children() - before) / rows * 1000


def _first_call(side: Side, rows: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = side.command(1, f"http://127.0.0.1:{server.getsockname()[1]}", calls=1, timed=False)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            server.settimeout(60)
            try:
                _wait_for_chat(server)
                return _cpu_of(process.pid)
            except TimeoutError:
                raise Failed("no chat request within 60 s") from None
            finally:
                process.kill()


def _wait_for_chat(server: socket.socket) -> None:
    """Return when a chat request arrives. Earlier requests for the list of models are answered."""
    while True:
        connection, _ = server.accept()
        with connection:
            if connection.recv(5).startswith(b"POST"):
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\nConnection: close\r\n\r\n")
            connection.sendall(b'{"data":[]}')


def _cpu_of(process_id: int) -> float:
    process = psutil.Process(process_id)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def _rows_kept(side: Side, rows: int) -> float:
    with tempfile.TemporaryDirectory() as folder, endpoint(Settings(latency_seconds=LATENCY, refused_share=_REFUSED_SHARE)) as url:
        answered = sum(not refuses(prompt, _REFUSED_SHARE) for _, prompt in _prompts(Path(folder), rows))
        return _told(side.command(rows, url, calls=64, timed=True), rows * LATENCY / 64)["rows"] / answered


def _told(command: list[str], ideal: float) -> dict[str, Any]:
    return json.loads(_run(command, ideal).splitlines()[-1])


def _run(command: list[str], ideal: float) -> str:
    """The output of a command that should take `ideal` seconds. Raises Failed."""
    limit = 60 + 20 * ideal
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"not finished after {limit:.0f} s") from None
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:300]}")
    return done.stdout


_LINES = {
    "share_of_ideal_c64": lambda side, rows: _share_of_ideal(side, rows, 64),
    "share_of_ideal_c256": lambda side, rows: _share_of_ideal(side, rows * 4, 256),
    "storm_ratio": lambda side, rows: _storm(side, max(rows // 4, 1)),
    "process_cpu_ms_per_call": _process_cpu,
    "cpu_seconds_to_first_call": _first_call,
    "rows_kept": _rows_kept,
}


class _Engine:
    """Our engine, run as by a user; timed in a process that has already labeled one row."""

    version = __version__

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, rows: int, url: str, *, calls: int, timed: bool) -> list[str]:
        """See `Side.command`."""
        recipe = str(Bench(_new(self._folder)).recipe("run", rows, url, calls=calls))
        return [sys.executable, "-m", "benchmarks.distill.run", recipe] if timed else [*COMMAND, recipe]


class _Driven:
    """A peer behind its driver."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        self.version, self._peer, self._folder = peer.version, peer, folder

    def command(self, rows: int, url: str, *, calls: int, timed: bool) -> list[str]:
        """See `Side.command`. `-I` keeps the driver's folder out of its imports: files there are named after the peers."""
        folder = _new(self._folder)
        lines = [json.dumps({"id": id, "prompt": prompt}) for id, prompt in _prompts(folder, rows)]
        (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        values = [self._peer.name, f"{url}/v1", str(folder / "rows.jsonl"), str(calls), str(folder / "output")]
        return [str(self._peer.python), "-I", str(_DRIVER), *values, *(["--warm"] if timed else [])]


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


def _prompts(folder: Path, rows: int) -> Iterator[tuple[str, str]]:
    """The id and the prompt of each row, which every side sends."""
    write_questions(folder / "questions.jsonl", rows)
    with (folder / "questions.jsonl").open(encoding="utf-8") as file:
        for question in map(json.loads, file):
            yield question["id"], render_prompt("teacher_decomposition", question=question["text"], examples="zero")
