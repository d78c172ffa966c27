"""`python -m benchmarks.distill --peers`: every line is measured for the engine and its peers, and a peer that is missing is one line."""

import os
import sys
from pathlib import Path

import pytest

from benchmarks.distill import comparison
from benchmarks.distill.__main__ import main
from benchmarks.distill.comparison import compare
from benchmarks.distill.peers.find import DISTRIBUTIONS, find_peers
from refinery.errors import PluginError

# A folder with environments called curator and datatrove, made as benchmarks/README.md says.
PEERS = os.environ.get("REFINERY_BENCH_PEERS", "")
LINES = {
    "share_of_ideal_c64",
    "share_of_ideal_c256",
    "storm_ratio",
    "process_cpu_ms_per_call",
    "cpu_seconds_to_first_call",
    "rows_kept",
}


def installed(name: str) -> Path:
    python = Path(PEERS) / name / "bin" / "python"
    if not PEERS or not python.exists():
        pytest.skip(f"no {name}: REFINERY_BENCH_PEERS names no folder with its environment (benchmarks/README.md)")
    return python


def test_the_engine_and_the_floor_keep_the_rows_that_are_answered(tmp_path):
    (floor,) = find_peers("floor")
    for side in (comparison._Engine(tmp_path), comparison._Driven(floor, tmp_path)):
        assert comparison._rows_kept(side, 100) == 1


@pytest.mark.slow
def test_the_engine_and_the_floor_are_measured_on_every_line():
    figures = compare("floor", rows=64, repeats=1)
    assert figures["faults"] == {}
    assert figures["versions"].keys() == figures["medians"].keys() == {"refinery", "floor"}
    for lines in figures["medians"].values():
        assert lines.keys() == LINES
        assert lines["rows_kept"] == 1
        assert lines["storm_ratio"] > 0.9
        assert 0 < lines["share_of_ideal_c64"] < 1.1


@pytest.mark.parametrize("name", ["curator", "datatrove"])
def test_a_peer_keeps_the_rows_that_are_answered(name, tmp_path):
    (peer,) = [one for one in find_peers(f"{name}={installed(name)}") if one.name == name]
    assert comparison._rows_kept(comparison._Driven(peer, tmp_path), 100) == 1


def test_a_ratio_above_1_is_in_our_favor():
    ours = dict.fromkeys(LINES, 2.0)
    theirs = dict.fromkeys(LINES, 1.0)
    assert comparison._times_better(ours, theirs)["share_of_ideal_c64"] == 2
    assert comparison._times_better(ours, theirs)["storm_ratio"] == 0.5


def test_each_repetition_begins_with_another_side():
    assert [next(iter(comparison._turns(["a", "b"], repeat)))[1] for repeat in range(3)] == ["a", "b", "a"]


def test_a_side_that_fails_has_no_figure_and_says_why():
    class Broken:
        version = "0"

        def command(self, rows, url, *, calls, timed):
            return [sys.executable, "-c", "raise SystemExit('no luck')"]

    faults = {}
    assert comparison._measured("rows_kept", "broken", Broken(), 4, faults) is None
    assert faults == {"broken rows_kept": "exit code 1: no luck"}


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ("curater=python", "no peer 'curater'. Did you mean 'curator'?"),
        ("curator=/no/such/python", "cannot be started (No such file or directory)"),
        (f"curator={sys.executable}", "has no bespokelabs-curator. Install it there"),
        ("/no/such/folder", "neither NAME=PYTHON nor a folder with environments called curator, datatrove, floor"),
    ],
)
def test_a_peer_that_is_not_there_is_refused_in_one_line(named, error):
    with pytest.raises(PluginError) as caught:
        find_peers(named)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_refuses_no_rows(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--peers", "floor", "--rows", "0"])
    assert "both must be at least 1" in capsys.readouterr().err


def test_every_peer_has_a_driver():
    folder = Path(comparison.__file__).with_name("peers")
    assert DISTRIBUTIONS.keys() == {path.stem for path in folder.glob("*.py")} - {"__init__", "driver", "find"}
