"""The most frequent cause of each reason, in the words of the server or of the check, and what to do about it."""

from refinery.reporting.causes import Causes, cause_lines


def causes(*details: tuple[str, str]) -> Causes:
    found = Causes()
    for reason, detail in details:
        found.add(reason, detail)
    return found


def test_causes_that_differ_only_in_numbers_quotes_and_replies_are_one():
    found = causes(
        ("malformed", "malformed: field 'sub_questions': Field required; reply: '{\"steps\": \"none\"}'"),
        ("refused", "I'm sorry."),
        ("malformed", "field 'sub_questions': Field required; reply: 'Who?'"),
        ("malformed", "there is no JSON object in it; reply: 'Who?'"),
    ).report()
    assert found == {
        "malformed": {"total": 3, "count": 2, "cause": "field 'sub_questions': Field required; reply: '{\"steps\": \"none\"}'"},
        "refused": {"total": 1, "count": 1, "cause": "I'm sorry."},
    }


def test_a_line_says_how_often_why_and_what_to_do():
    lines = cause_lines(
        causes(
            *[("truncated", "the reply was cut at 64 tokens; raise teacher.max_tokens")] * 2,
            ("no_reply", "timed out"),
            ("refused", "status 400: This model's maximum context length is 512 tokens."),
            ("wrong_answer", "answered 'Oslo', gold 'Lyon'"),
        ).report()
    )
    assert lines == [
        "truncated, 2 of 2: the reply was cut at 64 tokens; raise teacher.max_tokens",
        "no_reply, 1 of 1: timed out. --resume asks them again.",
        "refused, 1 of 1: status 400: This model's maximum context length is 512 tokens. Shorten the prompts (passages_per_query), "
        "lower max_tokens, or serve the model with a longer context.",
        "wrong_answer, 1 of 1: answered 'Oslo', gold 'Lyon'",
    ]


def test_a_hostile_or_endless_cause_is_one_short_line():
    (line,) = cause_lines(causes(("refused", "\x1b[2J\n" + "word " * 10_000)).report())
    assert line.startswith(r"refused, 1 of 1: \x1b[2J word word")
    assert len(line) < 250


def test_of_very_many_different_causes_only_the_first_are_told_apart():
    different = [("refused", f"no {chr(number)}") for number in range(0x4E00, 0x4E00 + 1_500)]
    found = causes(*different, different[0]).report()
    assert found == {"refused": {"total": 1_501, "count": 2, "cause": different[0][1]}}
