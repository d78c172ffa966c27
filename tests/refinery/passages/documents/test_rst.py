"""reStructuredText as docutils and Sphinx write it."""

from pathlib import Path

import pytest

pytest.importorskip("docutils", reason="needs the extra `documents`")

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Heading
from refinery.passages.documents.rst import read_rst


def elements(text: str) -> list[Heading | Block]:
    return list(read_rst(text.encode(), Path("a.rst")).elements)


def test_sections_lists_tables_and_code_are_told_apart():
    text = "Lyon\n====\n\nA *city*.\n\nRivers\n------\n\n- Rhone\n- Saone\n\n::\n\n    flow()\n\n"
    text += "==== ====\nName km\n==== ====\nSein 774\n==== ====\n"
    assert elements(text) == [
        *(Heading(1, "Lyon"), Block("A city."), Heading(2, "Rivers"), Block("- Rhone", "item"), Block("- Saone", "item")),
        *(Block("flow()", "code"), Block("| Name | km |\n| Sein | 774 |", "table")),
    ]


def test_sphinx_directives_and_roles_are_read_as_the_text_in_them():
    text = ".. versionadded:: 3.2\n   Faster.\n\n.. toctree::\n\n   other\n\nSee :ref:`the guide <guide>` and :py:func:`~os.path.join`."
    assert elements(text) == [Block("3.2 Faster."), Block("See the guide and os.path.join.")]


@pytest.mark.parametrize("directive", ["include:: {}", "literalinclude:: {}", "raw:: html\n   :file: {}", "csv-table:: x\n   :file: {}"])
def test_no_other_file_is_read(directive, tmp_path):
    (secret := tmp_path / "secret").write_text("secret")
    assert "secret" not in str(elements(f".. {directive.format(secret)}\n\nText.\n"))


def test_replacements_do_not_multiply():
    lines = [".. |a0| replace:: ha", *(f".. |a{n}| replace:: {f'|a{n - 1}| ' * 10}" for n in range(1, 7))]
    assert sum(len(block.text) for block in elements("\n".join([*lines, "", "|a6|"]))) < 10_000


def test_a_very_long_line_is_named():
    with pytest.raises(RecordError, match=r"a\.rst:2: has more than 10,000 letters"):
        elements("Lyon\n" + "x" * 10_001)
