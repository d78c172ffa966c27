"""Citations in a text: which passages it cites, and what is left of it when a citation is of none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.citations import closed_part, resolved, without_citations

TEXTS = st.text("ab [],;0129\n", max_size=30)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Lyon [1].", ("Lyon [1].", [1], 0)),
        ("Lyon [3].", ("Lyon.", [], 1)),
        ("Lyon [1, 3; 2] it is[0].", ("Lyon [1][2] it is.", [1, 2], 2)),
        ("[2] says so", ("[2] says so", [2], 0)),
        ("a list [1.5], [sic], [a1] and [12345]", ("a list [1.5], [sic], [a1] and [12345]", [], 0)),
    ],
)
def test_citations_resolve_or_are_removed(text, found):
    assert resolved(text, 2) == found


@given(TEXTS)
def test_every_citation_that_is_left_resolves(text):
    left, cited, _ = resolved(text, 2)
    assert resolved(left, 2) == (left, cited, 0)
    assert resolved(without_citations(text), 2)[1] == []


@given(TEXTS, st.integers(0, 30))
def test_the_closed_part_of_a_beginning_is_the_beginning_of_the_whole(text, most):
    assert resolved(text, 2)[0].startswith(resolved(closed_part(text[:most]), 2)[0])
