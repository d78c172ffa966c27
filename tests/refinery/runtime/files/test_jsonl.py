"""Files of lines and their index."""

import pytest
from helpers.full_disk import full_disk
from hypothesis import given
from hypothesis import strategies as st

from refinery.runtime.files import jsonl
from refinery.runtime.files.jsonl import LineIndex, drop_torn_line, numbered_lines, write_lines

ids = st.text("abc", max_size=3)


@given(st.lists(st.tuples(ids, st.integers(0, 99))))
def test_an_index_finds_the_places_of_each_id_in_the_order_of_adding(added):
    index = LineIndex()
    for number, (line_id, start) in enumerate(added):
        index.add(line_id, start, file=number % 3)
        assert line_id in index
    for line_id in {line_id for line_id, _ in added} | {"absent"}:
        wanted = [(number % 3, start) for number, (other, start) in enumerate(added) if other == line_id]
        assert index.find(line_id) == wanted
    assert (len(index), index.num_ids()) == (len(added), len({line_id for line_id, _ in added}))


@pytest.mark.parametrize("block", [1, 3, 1 << 16])
@pytest.mark.parametrize(("held", "kept"), [(b"", b""), (b"torn", b""), (b"a\nb\n", b"a\nb\n"), (b"a\n\xc3\xa9\nto", b"a\n\xc3\xa9\n")])
def test_a_torn_line_is_dropped(tmp_path, monkeypatch, block, held, kept):
    monkeypatch.setattr(jsonl, "_BLOCK", block)
    (tmp_path / "lines").write_bytes(held)
    drop_torn_line(tmp_path / "lines")
    assert (tmp_path / "lines").read_bytes() == kept


def test_lines_are_found_where_they_begin(tmp_path):
    write_lines(tmp_path / "lines", ["é\u2028", "", "b"])
    content = (tmp_path / "lines").read_bytes()
    assert [content[start : start + len(line)] for start, line in numbered_lines(tmp_path / "lines")] == content.splitlines(keepends=True)


def test_a_file_gets_its_name_only_when_it_is_whole(tmp_path):
    (tmp_path / "lines").write_text("earlier\n")

    def lines():
        yield "half"
        raise KeyError

    with pytest.raises(KeyError):
        write_lines(tmp_path / "lines", lines())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["earlier\n"]


@pytest.mark.parametrize("length", [10, 100_000])  # of which the first only fails when the file is closed
def test_a_full_disk_is_told_with_the_name_of_the_file_and_leaves_none(tmp_path, length):
    with full_disk(5), pytest.raises(OSError, match="File too large: .*lines.jsonl"):
        write_lines(tmp_path / "lines.jsonl", ["x" * length])
    assert list(tmp_path.iterdir()) == []
