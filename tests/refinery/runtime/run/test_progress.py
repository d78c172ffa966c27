import io
import sys
import time

from rich.console import Console

from refinery.runtime.run import progress as module
from refinery.runtime.run.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_at_80_columns_the_bar_count_and_time_are_in_one_line_and_the_text_below(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", Terminal())
    text = "rejected=3 calls=1,200 hits=40 retries=2 in_flight=64 tokens=1,234,567 $1.25 (about $12.50 in all)"
    with Progress("distill a_task_with_a_very_long_name_of_its_own", total=20_000, below=lambda: text) as progress:
        progress.advance(4_000)
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(*progress._bar.get_renderables())
    first, *below = console.export_text().splitlines()
    assert first.startswith("distill a_task_with")
    assert "━━━" in first
    assert "4000/20000" in first
    assert ":" in first[-8:]  # the remaining time
    assert len(first) <= 80
    assert " ".join(" ".join(below).split()) == text


def test_without_a_terminal_lines_are_printed_while_no_row_ends(monkeypatch):
    monkeypatch.setattr(module, "_PLAIN_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    calls = iter(range(1_000_000))
    with Progress("infer rag", total=2, below=lambda: f"calls={next(calls)}"):
        while sys.stderr.getvalue().count("\n") < 2:
            time.sleep(0.01)
    assert sys.stderr.getvalue().startswith("infer rag: 0/2 calls=0\ninfer rag: 0/2 calls=1\n")
