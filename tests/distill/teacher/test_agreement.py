"""Raw agreement and Cohen's kappa, against the textbook's number and their properties."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distill.teacher.agreement import Agreement, cohens_kappa, with_agreement

LABELS = st.sampled_from(["know", "unknow", "unsure"])


def test_kappa_is_the_textbooks():
    pairs = Counter({("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15})
    assert cohens_kappa(pairs) == pytest.approx(0.4)


@given(st.lists(LABELS, min_size=1))
def test_labels_that_always_agree_have_kappa_1_unless_there_is_one_label(labels):
    kappa = cohens_kappa(Counter((label, label) for label in labels))
    assert kappa == (pytest.approx(1.0) if len(set(labels)) > 1 else None)


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1))
def test_kappa_does_not_depend_on_who_is_first(pairs):
    swapped = Counter((other, one) for one, other in pairs)
    kappa = cohens_kappa(Counter(pairs))
    assert kappa == (None if kappa is None else pytest.approx(cohens_kappa(swapped)))


def test_the_report_can_be_recomputed_from_its_counts():
    agreement = Agreement()
    agreement.add("samples", [("know", "know"), ("know", "unknow"), ("unknow", "unknow")])
    report = agreement.report()["samples"]
    assert (report["pairs"], report["raw"]) == (3, pytest.approx(2 / 3))
    assert with_agreement(report["counts"]) == report


def test_texts_have_no_kappa():
    agreement = Agreement()
    agreement.add("samples", [("same", "same"), ("same", "different")])
    assert (agreement.report()["samples"]["raw"], agreement.report()["samples"]["kappa"]) == (0.5, None)
