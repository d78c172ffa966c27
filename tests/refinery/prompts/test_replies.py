"""What trained modules write, and what they read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.records import Passage
from refinery.prompts.render import render_prompt
from refinery.prompts.replies import REPLIES, Information, LeafReply, MainReply, QueriesReply, student_prompt

# One line of words, as a statement or a query is; what a model writes between them is not this contract's.
lines = st.lists(st.text("abcDEF\"'{}[]0123.,:#?", min_size=1, max_size=8), min_size=1, max_size=5).map(" ".join)
statements = st.builds(Information, info=lines, support_passages=st.lists(st.integers(1, 50), max_size=4))


@given(st.lists(statements, max_size=5).map(lambda items: LeafReply(useful_information=items)))
def test_a_leafs_statements_come_back_with_their_citations(reply):
    assert LeafReply.from_plain(reply.plain()) == reply


@given(st.lists(lines, min_size=1, max_size=3).map(lambda queries: QueriesReply(queries=queries)))
def test_queries_come_back(reply):
    assert QueriesReply.from_plain(reply.plain()) == reply


def test_a_solved_reply_is_its_answer_and_an_open_one_says_what_is_missing():
    assert MainReply(answer="Mar del Plata").plain() == " Mar del Plata"
    missing = MainReply(answer="unanswerable", missing_information="Where was\nMara born?")
    assert missing.plain() == " unanswerable. Missing: Where was Mara born?"
    read = MainReply.from_plain(missing.plain())
    assert (read.solved, read.missing_information) == (False, "Where was Mara born?")
    assert MainReply.from_plain(" Mar del Plata").solved


def test_an_explanation_stands_before_its_answer():
    reply = MainReply(answer="Mar del Plata", explanation="Mara was born there.\nAnswer: sure.")
    assert reply.plain() == " Mara was born there. Answer: sure. Answer: Mar del Plata"
    read = MainReply.from_plain(reply.plain())
    assert (read.answer, read.explanation) == ("Mar del Plata", "Mara was born there. Answer: sure.")


@pytest.mark.parametrize("text", ["Unanswerable", "unanswerable.", " unanswerable Missing: "])
def test_an_open_reply_that_names_nothing_is_open_too(text):
    read = MainReply.from_plain(text)
    assert not read.solved
    assert not read.missing_information


def test_an_answer_that_begins_like_an_open_reply_stays_an_answer():
    assert MainReply.from_plain("unanswerable questions").answer == "unanswerable questions"


def test_a_list_without_line_breaks_is_read_as_t5_writes_it():
    assert LeafReply.from_plain("1. [1] Dune is a film. 2. [2, 3] Oslo is a city.").useful_information == [
        Information(info="Dune is a film.", support_passages=[1]),
        Information(info="Oslo is a city.", support_passages=[2, 3]),
    ]


@pytest.mark.parametrize("text", ["", "I think so.", "1. no citation"])
def test_a_leaf_reply_of_another_form_is_an_error(text):
    with pytest.raises(ValueError, match="neither a numbered list"):
        LeafReply.from_plain(text)


def test_every_module_with_a_schema_has_a_students_prompt():
    values = {"question": "Q?", "examples": "zero", "passages": [], "information": [], "asked": [], "missing": "all", "last": False}
    for name in REPLIES:
        short = student_prompt(name, **values, yes_no=False)
        assert short.name == f"student_{name}"
        assert len(short) < len(render_prompt(name, **values, yes_no=False)) / 3


def test_a_student_reads_the_prompt_itself_where_there_is_no_short_one():
    assert student_prompt("answer_direct", question="Q?") == render_prompt("answer_direct", question="Q?")


def test_a_passage_read_back_from_json_renders_the_same():
    passage = Passage(id="1", title="Dune", text="A film.")
    values = {"query": "Q?", "knowledge": [(1, passage)]}
    from_json = {"query": "Q?", "knowledge": [[1, passage.model_dump()]]}
    assert student_prompt("re_thinking_relevance", **values) == student_prompt("re_thinking_relevance", **from_json)
