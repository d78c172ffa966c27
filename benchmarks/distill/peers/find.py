"""Find the peers that a user names: each needs the Python of a virtual environment where it is installed."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from refinery.errors import PluginError
from refinery.text import did_you_mean

# Distributions by peer. The floor runs on ours, because it needs nothing else.
DISTRIBUTIONS = {"curator": "bespokelabs-curator", "datatrove": "datatrove", "floor": "aiohttp"}
FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that is installed: its driver is NAME.py beside this file."""

    name: str
    python: Path
    version: str


def find_peers(named: str) -> list[Peer]:
    """The peers in `NAME=PYTHON,...`, where a part may also be a folder with environments called NAME, or `floor`; always with the floor.

    Raises PluginError for a peer that is unknown or not installed.
    """
    pythons = {FLOOR: Path(sys.executable)}
    for part in named.split(","):
        pythons |= _pythons(part.strip())
    return [Peer(name, python, _version(name, python)) for name, python in pythons.items()]


def _pythons(part: str) -> dict[str, Path]:
    name, given, path = part.partition("=")
    if given:
        return {_known(name): Path(path)}
    if part == FLOOR:
        return {}
    if found := dict(_environments(Path(part))):
        return found
    raise PluginError(f"--peers {part}: neither NAME=PYTHON nor a folder with environments called {', '.join(DISTRIBUTIONS)}.")


def _environments(folder: Path) -> Iterator[tuple[str, Path]]:
    for name in DISTRIBUTIONS:
        if (python := folder / name / "bin" / "python").exists():
            yield name, python


def _known(name: str) -> str:
    if name not in DISTRIBUTIONS:
        raise PluginError(f"--peers: no peer '{name}'.{did_you_mean(name, DISTRIBUTIONS)}")
    return name


def _version(name: str, python: Path) -> str:
    """The version of the peer in an environment. Raises PluginError if it is not installed."""
    distribution = DISTRIBUTIONS[name]
    ask = f"from importlib.metadata import version; print(version({distribution!r}))"
    try:
        done = subprocess.run([str(python), "-I", "-c", ask], capture_output=True, text=True)
    except OSError as error:
        raise PluginError(f"--peers {name}={python}: cannot be started ({error.strerror}). Name the Python of its environment.") from None
    if done.returncode:
        raise PluginError(f"--peers {name}={python}: has no {distribution}. Install it there: {python} -m pip install {distribution}")
    return done.stdout.strip()
