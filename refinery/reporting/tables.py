"""A table for a terminal, for Markdown, as CSV or for LaTeX (with booktabs)."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refinery.reporting.markdown import plain, table
from refinery.text import printable

TableFormat = Literal["terminal", "markdown", "csv", "latex"]
TABLE_FORMATS: tuple[str, ...] = get_args(TableFormat)

_PIPE_WIDTH = 160  # because a pipe has no width
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\n": " ",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], table_format: TableFormat) -> str:
    """The table as text. Cells are plain text, never markup."""
    header, rows = [printable(name) for name in header], [[printable(cell) for cell in row] for row in rows]
    if table_format == "csv":
        return _csv(header, rows)
    if table_format == "markdown":
        lines = table(list(map(plain, header)), [list(map(plain, row)) for row in rows], numbers=True)
        return "".join(f"{line}\n" for line in lines)
    if table_format == "latex":
        return _latex(header, rows)
    return _terminal(header, rows)


def tokens_per_question(cost: Mapping[str, float]) -> str:
    """The tokens read and written for a question, with "≤" if a server did not report prefix-cache hits."""
    return f"{'≤ ' if cost.get('prefill_at_most') else ''}{cost['prefill_tokens'] + cost['decode_tokens']:.0f}"


def _csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([header, *rows])
    return written.getvalue()


def _latex(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}", r"\toprule", _latex_row(header), r"\midrule"]
    return "\n".join([*lines, *map(_latex_row, rows), r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    # Without braces, LaTeX would read a cell that starts with `[` as an option of the previous row's end.
    return " & ".join(f"{{{cell.translate(_LATEX)}}}" if cell.startswith("[") else cell.translate(_LATEX) for cell in cells) + r" \\"


def _terminal(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    shown = Table()
    for number, name in enumerate(header):
        shown.add_column(Text(name), justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))
    screen = Console()
    has_width = screen.is_terminal or "COLUMNS" in os.environ
    console = Console(file=io.StringIO(), width=screen.width if has_width else _PIPE_WIDTH)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()
