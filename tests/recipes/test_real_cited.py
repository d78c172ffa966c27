"""Forty questions to a served recipe: which its documents answer, and how its citations are checked."""

import pytest

from recipes.real.cited import _checked, write
from refinery.contract.records import Passage, Question, read_records
from refinery.errors import RecordError

LYON = Passage(id="p", title="Lyon", text="Lyon is in France.")
ASKED = Question(id="q", text="Where is Lyon?", answers=["France"])


def test_half_of_the_questions_have_their_passage_and_the_answers_of_the_others_are_in_none(tmp_path):
    write(tmp_path)
    questions, passages = read_records(tmp_path / "questions.jsonl", Question), read_records(tmp_path / "passages.jsonl", Passage)
    ids, text = {passage.id for passage in passages}, "\n".join(f"{p.title} {p.text}" for p in passages).casefold()
    answered = [question for question in questions if question.supporting]
    silent = [question for question in questions if not question.supporting]
    assert (len(answered), len(silent), len({question.text for question in questions})) == (20, 20, 40)
    assert all(ids.issuperset(question.supporting) for question in answered)
    assert [question.answers for question in silent if question.answers[0].casefold() in text] == []


def test_a_citation_of_what_was_not_read_is_an_error():
    found = {"read": [LYON.model_dump()], "answered": True, "citations": {"removed": 1, "by_words": False}}
    assert _checked(ASKED, "In France [1].", found, {"p": LYON}) == [1, 1, 0, 1, 0, 1, 1]
    for said, documents in (("In France [2].", {"p": LYON}), ("In France [1].", {})):
        with pytest.raises(RecordError, match="'q': of its citations"):
            _checked(ASKED, said, found, documents)
