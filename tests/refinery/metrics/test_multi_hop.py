import pytest

from refinery.metrics.multi_hop import hotpotqa_f1, musique_f1
from refinery.metrics.squad import token_f1


@pytest.mark.parametrize("closed", ["yes", "No.", "no answer", "noanswer"])
def test_hotpotqa_grants_a_closed_answer_no_part_of_a_longer_one(closed):
    longer = f"{closed} of course"
    expected = token_f1(closed, [longer]) if closed == "no answer" else 0
    assert hotpotqa_f1(closed, [longer]) == hotpotqa_f1(longer, [closed]) == expected
    assert hotpotqa_f1(closed, [closed.upper()]) == 1


def test_hotpotqa_is_squad_for_open_answers():
    assert hotpotqa_f1("city Lyon", ["the city of Lyon"]) == token_f1("city Lyon", ["the city of Lyon"]) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("prediction", "gold", "f1"), [("", "", 1), ("the", "A.", 1), ("", "Lyon", 0), ("Lyon", "the", 0), ("a Lyon", "Lyon", 1)]
)
def test_musique_grants_nothing_for_nothing(prediction, gold, f1):
    assert musique_f1(prediction, [gold]) == f1
