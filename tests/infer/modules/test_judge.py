"""A judge that labels what a module labels (RA-ISF Table 4), also where nothing is annotated."""

import json

import pytest

SUB, WHOLE = "annotated sub-questions", "questions"
PASSAGE = {"id": "p", "title": "Lyon", "text": "Lyon is a city in France."}


def judging(gold, verdict: str):
    """The gold, and a judge that replies with one verdict to the prompts of `distill`."""

    def reply(prompt: str) -> str:
        return verdict if "one JSON object" in prompt else gold(prompt)

    return reply


@pytest.mark.parametrize(
    ("module", "verdict", "shares"),
    [
        ("self_knowledge", '{"answer": "yes"}', [1.0, 1.0]),
        ("self_knowledge", '{"answer": "no"}', [0.0, 0.0]),
        ("self_knowledge", "It depends.", [0.0, 0.0]),
        ("relevance", "I like tea.", [0.0, 0.0]),
    ],
)
def test_a_judge_labels_what_the_module_labels(evaluated, measure, gold, module, verdict, shares):
    lines = evaluated("ra_isf", module, judging(gold, verdict), judged=True, limit=6)
    assert [measure(lines[on], "judged the same")[0] for on in (WHOLE, SUB)] == shares


def test_a_judge_of_passages_agrees_where_both_say_irrelevant(evaluated, measure, gold):
    lines = evaluated("ra_isf", "relevance", judging(gold, '{"label": "irrelevant"}'), judged=True, limit=6)
    shares, positive = measure(lines[SUB], "judged the same", "accuracy")
    assert 0 < shares < 1
    assert positive == 1.0


@pytest.mark.parametrize(("module", "measured"), [("relevance", "judged the same"), ("decomposition", "judged consistent")])
def test_a_judge_needs_no_annotations(evaluated, tmp_path, module, measured):
    rows = [{"id": f"q{number}", "text": "Where is Lyon?", "answers": ["France"], "passages": [PASSAGE]} for number in range(3)]
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def reply(prompt: str) -> str:
        if "semantically consistent" in prompt:
            return "Yes."
        return '{"label": "relevant"}' if "one JSON object" in prompt else "1. Where is Lyon?\n" if "break down" in prompt else "relevant"

    asked = {"questions": [str(tmp_path / "plain.jsonl")], "reader": "jsonl"}
    assert "none of 3 questions has" in evaluated("ra_isf", module, reply, **asked)
    (found,) = evaluated("ra_isf", module, reply, judged=True, **asked).values()
    assert (found["questions"], found["measures"][measured]["mean"]) == (3, 1.0)


def test_a_decomposition_without_sub_questions_is_not_consistent(evaluated, measure):
    lines = evaluated("ra_isf", "decomposition", lambda prompt: "No.", limit=4, judged=True)
    assert measure(lines["meaning of the question"], "judged consistent") == [0.0]
