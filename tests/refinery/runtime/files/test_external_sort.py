"""Lines sorted through files as they are sorted in memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.runtime.files import external_sort
from refinery.runtime.files.external_sort import SortedLines, sorted_fingerprint
from refinery.runtime.files.fingerprint import text_fingerprint

lines = st.lists(st.text(st.characters(exclude_characters="\n"), max_size=6), max_size=40)


@pytest.fixture(params=[1, 5, 1 << 20])
def characters_at_once(request, monkeypatch):
    monkeypatch.setattr(external_sort, "_CHARACTERS_AT_ONCE", request.param)
    monkeypatch.setattr(external_sort, "_MOST_FILES", 3)


@pytest.mark.usefixtures("characters_at_once")
def test_lines_come_in_the_order_of_sorted_as_often_as_asked():
    @given(lines)
    def check(added):
        ordered = SortedLines()
        for line in added:
            ordered.add(line)
        assert list(ordered) == list(ordered) == sorted(added)

    check()


@pytest.mark.usefixtures("characters_at_once")
def test_the_fingerprint_is_that_of_the_sorted_list():
    added = ["é", "\U0001f600", "\ue000", "a\u2028", "\r", "", "a", "a"]
    assert sorted_fingerprint(added) == text_fingerprint(sorted(added))
