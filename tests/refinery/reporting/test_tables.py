import csv
import io

import pytest

from refinery.reporting.tables import TABLE_FORMATS, render_table

HEADER, ROWS = ["system", "em.squad"], [["ra_isf | paper", "50% [45, 55]"], ["[bold]rag[/bold]", "-"]]


def test_markdown_keeps_a_cell_in_its_column():
    assert render_table(HEADER, ROWS, "markdown").splitlines() == [
        "| system | em.squad |",
        "|---|---:|",
        "| ra_isf \\| paper | 50% [45, 55] |",
        "| [bold]rag[/bold] | - |",
    ]


def test_csv_reads_back_as_it_was():
    assert list(csv.reader(io.StringIO(render_table(HEADER, ROWS, "csv")))) == [HEADER, *ROWS]


def test_latex_escapes_what_it_would_read():
    lines = render_table(HEADER, [*ROWS, ["a\\b & {c} ~ $^#", "1"]], "latex").splitlines()
    assert lines[0] == r"\begin{tabular}{lr}"
    assert lines[4] == r"ra\_isf | paper & 50\% [45, 55] \\"
    assert lines[5] == r"{[bold]rag[/bold]} & - \\"  # an open bracket after \\ would be an option
    assert lines[6] == r"a\textbackslash{}b \& \{c\} \textasciitilde{} \$\textasciicircum{}\# & 1 \\"


def test_a_terminal_shows_markup_as_text():
    assert "[bold]rag[/bold]" in render_table(HEADER, ROWS, "terminal")


@pytest.mark.parametrize("table_format", TABLE_FORMATS)
def test_every_format_ends_its_last_line(table_format):
    assert render_table(HEADER, ROWS, table_format).endswith("\n")
