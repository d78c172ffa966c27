import pytest

from refinery.llms.served.replies.bare_reply import yes_or_no


@pytest.mark.parametrize(
    ("reply", "says_yes"),
    [
        ("Yes.", True),
        ("**Yes**, it implies it, with no contradiction.", True),
        ("Yes it does", True),
        ("No", False),
        ("'no': another year", False),
        ("Yes and no.", None),
        ("yes/no", None),
        ("No ... yes", None),
        ("Yesterday", None),
        ("Nothing implies it.", None),
        ("Not sure", None),
        ("It does.", None),
        ("", None),
    ],
)
def test_a_judge_says_yes_or_no_by_its_first_word(reply, says_yes):
    assert yes_or_no(reply) is says_yes
