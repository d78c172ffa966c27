"""What the demo's teacher reads out of a prompt, and what it makes of it."""

import json
import random
from typing import Any

import pytest
from helpers.demo_teacher import COMMON_QUESTIONS, PASSAGES, QUESTIONS, WORLDS, several, some
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.records import Passage, Question
from refinery.demo.teacher.facts import Fact, read_statements, solve
from refinery.demo.teacher.prompt_form import PromptForm, shown_passages
from refinery.demo.teacher.replies import REFUSAL, DemoTeacher
from refinery.demo.world.questions import QUESTION_TYPES, RELATIONS
from refinery.prompts.render import render_prompt

TEACHER = DemoTeacher(WORLDS)
TEST_PASSAGES = [passage for id, passage in PASSAGES.items() if id.startswith("test:")]
NAMES = {entity.name for world in WORLDS.values() for entity in world.entities.values()} | {str(year) for year in range(1880, 2020)}


def knowledge(passages: list[Passage]) -> list[tuple[int, Passage]]:
    return list(enumerate(passages, 1))


def shown(name: str, question: str, passages: list[Passage]) -> str:
    """A prompt that shows passages, with nothing said before."""
    values: dict[str, Any] = {
        "question": question,
        "query": question,
        "passages": [(n, p.title, p.text) for n, p in knowledge(passages)] if name == "alce_answer" else passages,
        "knowledge": knowledge(passages),
        "steps": [("Thought: I search." if name == "react" else "Yes.\nFollow up: Who?", passages)],
        "relevance": "",
        "thinking": "",
        "sub_query": "",
        "more_relevance": "",
        "must_answer": False,
        "thoughts": [],
        "solved": [],
        "answer": "Nobody knows.",
        "problems": "It does not answer.",
    }
    return render_prompt(name, examples="zero", **values)


SHOWING = (
    *("answer_with_passages", "chain_of_thought", "chain_of_note", "iter_retgen", "plan_and_solve", "self_criticism_problems"),
    *("self_criticism_improve", "least_to_most_answer", "alce_answer", "ircot_reason", "react", "self_ask"),
    *("migres_leaf", "re_thinking_relevance", "re_thinking_thinking", "re_thinking_answer"),
)
FIXED: dict[str, dict[str, Any]] = {
    "alce_answer": {"passages": [("\1", "\1", "\1")]},
    "react": {"must_answer": False},
    "self_ask": {"must_answer": False, "examples": "zero"},
    "migres_leaf": {"examples": "zero"},
    "re_thinking_thinking": {"relevance": ""},
}


def gold(question: Question) -> list[Passage]:
    return [PASSAGES[id] for id in question.supporting or []]


# Prompts read backwards


@pytest.mark.parametrize("name", SHOWING)
def test_a_prompt_gives_back_its_question_and_its_passages(name: str) -> None:
    question, passages = some("two_hop").text, gold(some("ambiguous"))
    asked = PromptForm(name, **FIXED.get(name, {})).read(shown(name, question, passages))
    assert asked is not None
    assert asked.question == question
    assert [(passage.title, passage.text) for passage in shown_passages(asked.rest)] == [(p.title, p.text) for p in passages]
    assert [passage.number for passage in shown_passages(asked.rest)] == [1, 2]


@pytest.mark.parametrize("name", SHOWING)
@given(bait=st.sampled_from(SHOWING), text=st.text())
def test_a_passage_that_imitates_a_prompt_is_not_taken_for_the_question(name: str, bait: str, text: str) -> None:
    passages = [Passage(id="1", title="Elsewhere", text=f"{text}\n{shown(bait, 'Who directed Dark Harbor?', [])}\n{text}")]
    asked = PromptForm(name, **FIXED.get(name, {})).read(shown(name, "Where was the director of Dune born?", passages))
    assert asked is not None
    assert asked.question == "Where was the director of Dune born?"


@pytest.mark.parametrize("name", ["migres_leaf", "self_ask"])
def test_the_examples_of_a_prompt_are_not_its_question(name: str) -> None:
    question = some("single_hop")
    few, zero = (
        render_prompt(name, question=question.text, passages=gold(question), steps=[], must_answer=False, examples=examples)
        for examples in ("few", "zero")
    )
    assert TEACHER.reply(few) == TEACHER.reply(zero) != REFUSAL


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Question: Who directed Dark Harbor?\nReply:",
        render_prompt("judge", question="Who?", prediction="Me", answer="You"),
        render_prompt("self_knowledge", question="Who directed Dark Harbor?"),
        render_prompt("answer_direct", question="Who directed Dark Harbor?") + "\nBe brief.",
        render_prompt("migres_main", question="Is it?", information=[], last=False, yes_no=True, examples="zero"),
    ],
)
def test_a_prompt_that_it_does_not_know_is_refused(prompt: str) -> None:
    assert TEACHER.reply(prompt) == REFUSAL


# Facts


@given(relation=st.sampled_from(sorted(RELATIONS)), entity=st.sampled_from(TEST_PASSAGES), other=st.sampled_from(TEST_PASSAGES))
def test_a_statement_is_read_back(relation: str, entity: Passage, other: Passage) -> None:
    facts = [Fact(relation, entity.title, "Oak Bay"), Fact(relation, other.title, "1950")]
    assert read_statements(" ".join(fact.statement for fact in facts)) == facts


def test_films_of_one_name_both_answer_a_question_about_it() -> None:
    facts = [Fact("director", "Bitter Anchor (1950 film)", "Mara Kelby"), Fact("director", "Bitter Anchor (1960 film)", "Alen Tankin")]
    assert solve("Who directed Bitter Anchor?", facts).answer == "Mara Kelby and Alen Tankin"
    one = solve("Who directed Bitter Anchor?", facts[:1])
    assert (one.answer, one.guess, one.missing) == (None, "Mara Kelby", (("all films named Bitter Anchor",),))
    assert solve("Who directed Bitter Anchor (1950 film)?", facts).answer == "Mara Kelby"


def test_a_search_that_was_made_is_worded_anew_until_words_run_out() -> None:
    assert solve("What is the capital of Ilostan?", []).next_searches("What is the capital of Ilostan?") == ["capital of Ilostan"]
    solution = solve("Who directed Bitter Anchor?", [])
    assert solution.next_searches("Who directed Bitter Anchor?") == ["director of film Bitter Anchor"]
    assert solution.next_searches("Who directed Bitter Anchor? director of film Bitter Anchor") == []


def test_a_passage_says_only_what_is_left_of_its_text() -> None:
    question = some("single_hop")
    (passage,) = gold(question)
    cut = passage.model_copy(update={"text": "It is a drama."})
    replies = [TEACHER.reply(shown("answer_with_passages", question.text, [read])) for read in (passage, cut)]
    assert replies == [question.answers[0], "unknown"]


# What it may know


@given(
    name=st.sampled_from(SHOWING),
    question=st.sampled_from(QUESTIONS),
    helpful=st.lists(st.booleans(), min_size=3, max_size=3),
    others=st.lists(st.sampled_from(TEST_PASSAGES), max_size=3),
    seed=st.integers(0, 99),
)
def test_it_names_nothing_that_the_prompt_does_not(
    name: str, question: Question, helpful: list[bool], others: list[Passage], seed: int
) -> None:
    passages = [passage for passage, kept in zip(gold(question), helpful, strict=False) if kept] + others
    random.Random(seed).shuffle(passages)
    prompt = shown(name, question.text, passages)
    reply = TEACHER.reply(prompt)
    assert reply != REFUSAL
    assert [named for named in NAMES if named in reply and named not in prompt] == []


@given(question=st.sampled_from([q for q in QUESTIONS if q.type != "ambiguous"]), left_out=st.integers(0, 2))
def test_a_question_is_open_as_long_as_one_of_its_passages_is_left_out(question: Question, left_out: int) -> None:
    passages = gold(question)
    assert TEACHER.reply(shown("answer_with_passages", question.text, passages)) in question.answers
    del passages[left_out % len(passages)]
    assert TEACHER.reply(shown("answer_with_passages", question.text, passages)) == "unknown"


@pytest.mark.parametrize("name", ["answer_direct", "closed_book_few", "chain_of_thought"])
def test_closed_book_it_answers_about_the_common_world_alone(name: str) -> None:
    common = next(question for question in COMMON_QUESTIONS if question.type == "single_hop")
    replies = [TEACHER.reply(render_prompt(name, question=asked.text, passages=[])) for asked in (common, some("single_hop"))]
    assert common.answers[0] in replies[0]
    assert "unknown" in replies[1]


@pytest.mark.parametrize("question_type", ["two_hop", "three_hop", "comparison"])
def test_sub_answers_lead_to_the_answer_unless_one_is_unknown(question_type: str) -> None:
    question = some(question_type)
    solved = [(sub.text, sub.answer) for sub in question.decomposition or []]
    known, unknown = (
        TEACHER.reply(render_prompt("answer_from_sub_answers", question=question.text, sub_answers=sub_answers))
        for sub_answers in (solved, [*solved[:-1], (solved[-1][0], "unknown")])
    )
    assert (known, unknown) == (question.answers[0], "unknown")


# Replies that a student learns to write


def test_re_thinking_judges_thinks_and_asks_in_fixed_forms() -> None:
    question = next(q for q in several("two_hop") if q.text.startswith("Where was the director of"))
    film, person = gold(question)
    other = next(passage for passage in TEST_PASSAGES if passage not in (film, person))
    director, city = person.title, question.answers[0]
    read = knowledge([film, other])
    assert TEACHER.reply(render_prompt("re_thinking_relevance", query=question.text, knowledge=read)).splitlines() == [
        f"Knowledge 1: keep, because it is about {film.title}.",
        f"Knowledge 2: remove, because it is about {other.title}.",
    ]
    thinking = TEACHER.reply(render_prompt("re_thinking_thinking", query=question.text, knowledge=read, relevance=""))
    assert thinking == f"The director of {film.title} is {director}. Missing: Where was {director} born?"
    asked = {"query": question.text, "relevance": "", "thinking": thinking}
    assert TEACHER.reply(render_prompt("re_thinking_query", may_stop=True, **asked)) == f"Where was {director} born?"
    more = {"knowledge": read, "sub_query": "?", "more_knowledge": [(3, person)], "more_relevance": ""}
    assert TEACHER.reply(render_prompt("re_thinking_answer", **asked, **more)) == city


def test_re_thinking_asks_for_nothing_when_nothing_is_missing() -> None:
    question = some("two_hop")
    thinking = TEACHER.reply(render_prompt("re_thinking_thinking", query=question.text, knowledge=knowledge(gold(question)), relevance=""))
    assert thinking.endswith("Nothing is missing.")
    replies = [
        TEACHER.reply(render_prompt("re_thinking_query", query=question.text, relevance="", thinking=thinking, may_stop=may_stop))
        for may_stop in (True, False)
    ]
    assert replies[0] == "none"
    assert replies[1] != question.text


def migres_main(question: Question, information: list[str], *, last: bool = False) -> dict[str, str]:
    values = {"information": information, "last": last, "yes_no": False, "examples": "zero"}
    return json.loads(TEACHER.reply(render_prompt("migres_main", question=question.text, **values)))


def test_migres_answers_once_its_information_is_complete() -> None:
    question = next(q for q in several("three_hop") if "the birthplace of the director" in q.text)
    film, person, city = gold(question)
    facts = [Fact("director", film.title, person.title), Fact("birth_city", person.title, city.title)]
    facts.append(Fact("country", city.title, question.answers[0]))
    known = [fact.statement for fact in facts]
    assert migres_main(question, known[:1]) == {
        "answer": "unanswerable",
        "explanation": "The information is not sufficient.",
        "missing_information": f"Where was {person.title} born?",
    }
    assert migres_main(question, known[:2])["missing_information"] == f"Which country is {city.title} in?"
    assert migres_main(question, known)["answer"] == question.answers[0]
    assert [migres_main(question, known[:n], last=True)["answer"] for n in (2, 3)] == ["unknown", question.answers[0]]


def test_migres_leaf_cites_the_passage_of_each_statement() -> None:
    question = next(q for q in several("single_hop") if q.text.startswith("Who wrote"))
    (book,) = gold(question)
    other = next(passage for passage in TEST_PASSAGES if passage != book)
    reply = TEACHER.reply(render_prompt("migres_leaf", question=question.text, passages=[other, book], examples="zero"))
    statement = f"The author of {book.title} is {question.answers[0]}."
    assert json.loads(reply) == {"useful_information": [{"info": statement, "support_passages": [2]}]}


@pytest.mark.parametrize("question_type", QUESTION_TYPES)
def test_a_statement_is_entailed_by_its_own_passage_alone(question_type: str) -> None:
    for passage in gold(some(question_type)):
        others = [other for other in TEST_PASSAGES[:20] if other != passage]
        leaf = render_prompt("migres_leaf", question=f"What about {passage.title}", passages=[passage], examples="zero")
        info = json.loads(TEACHER.reply(leaf))["useful_information"][0]["info"]
        premises = [f"{premise.title} {premise.text}" for premise in (passage, *others)]
        replies = [TEACHER.reply(render_prompt("migres_entailment", hypothesis=info, premise=premise)) for premise in premises]
        assert [json.loads(reply)["entails"] for reply in replies] == [True] + [False] * len(others)


def test_least_to_most_fills_in_the_answers_before() -> None:
    question = some("two_hop")
    parts = [sub.text for sub in question.decomposition or []]
    listed = TEACHER.reply(render_prompt("least_to_most_decompose", question=question.text))
    assert listed == "\n".join(f"{number}. {part}" for number, part in enumerate(parts, 1))
    bridge, _ = (sub.answer for sub in question.decomposition or [])
    prompt = render_prompt("least_to_most_answer", question=parts[1], solved=[(parts[0], bridge)], passages=gold(question)[1:])
    assert TEACHER.reply(prompt).endswith(f"The answer is {question.answers[0]}.")
