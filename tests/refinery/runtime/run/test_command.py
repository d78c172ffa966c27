"""How a command ends."""

import os
import signal
import subprocess
import sys

import pytest

from refinery.runtime.run.command import guarded


def test_output_that_nobody_reads_any_more_ends_it_without_a_word(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert guarded(lambda: closed.write("a short line"), traceback=False) == 128 + signal.SIGPIPE
        assert guarded(lambda: closed.write("long " * 100_000), traceback=False) == 0  # what follows goes nowhere


def test_a_connection_that_breaks_is_an_error(capfd):
    def send():
        raise BrokenPipeError(32, "Broken pipe")

    with capfd.disabled(), pytest.raises(BrokenPipeError):
        guarded(send, traceback=False)


def test_head_takes_the_first_lines_of_a_list():
    command = [sys.executable, "-m", "refinery.cli", "recipes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE
