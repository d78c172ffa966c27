"""A rationale before a label: asked for first, kept with the row, never trained."""

import json

import pytest

from distill.steps.reply_schemas import rationale_of, reasoned
from distill.tasks.relevance import EachReply, Reply
from refinery.contract.records import Passage, Question
from refinery.prompts.render import render_prompt
from refinery.tasks.base import task_of

DUNE = Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed.")
OSLO = Passage(id="oslo", title="Oslo", text="Oslo is a city where nobody directed Dune.")
QUESTION = Question(id="q", text="Who directed Dune?", passages=[DUNE, OSLO])
WHY = "The first one names the director."
CASES = [
    ("relevance", {"judge": "each"}, {"label": "relevant"}, "teacher_relevance_each"),
    ("relevance", {"judge": "list"}, {"relevant": [1]}, "teacher_relevance"),
    ("self_knowledge", {"by": "teacher"}, {"answer": "yes"}, "teacher_self_knowledge"),
]


@pytest.mark.parametrize(("task", "options", "reply", "prompt"), CASES)
def test_a_rationale_is_kept_with_the_row_and_not_trained(label, scripted_teacher, task, options, reply, prompt):
    teacher = scripted_teacher(json.dumps({"rationale": f" {WHY} "} | reply))
    rows = label(task, QUESTION, {"teacher": teacher}, rationale=True, **options)
    assert {row.rationale for row in rows} == {WHY}
    assert not any(WHY in text for row in rows for text in task_of(row).prompt_and_reply(row))
    assert all('Put "rationale" first' in prompt for prompt in teacher.prompts)


@pytest.mark.parametrize(("task", "options", "reply", "prompt"), CASES)
def test_without_the_option_no_rationale_is_asked_for(label, scripted_teacher, task, options, reply, prompt):
    teacher = scripted_teacher(json.dumps(reply))
    rows = label(task, QUESTION, {"teacher": teacher}, **options)
    assert not any("rationale" in row.model_dump_json(exclude_none=True) for row in rows)
    assert not any("rationale" in prompt for prompt in teacher.prompts)


@pytest.mark.parametrize("schema", [Reply, EachReply])
def test_the_schema_has_the_rationale_first(schema):
    assert next(iter(reasoned(schema).model_json_schema()["properties"])) == "rationale"
    assert rationale_of(schema.model_construct()) is None


def test_both_orders_of_a_list_give_their_rationale(label, scripted_teacher):
    replies = iter(["First.", "Second."])
    teacher = scripted_teacher(lambda _: json.dumps({"rationale": next(replies), "relevant": []}))
    rows = label("relevance", QUESTION, {"teacher": teacher}, rationale=True, swap=True)
    assert {row.rationale for row in rows} == {"First.\nSecond."}


@pytest.mark.parametrize(("task", "options", "reply", "prompt"), CASES)
def test_worked_examples_reply_in_the_form_that_is_asked_for(task, options, reply, prompt):
    text = render_prompt(prompt, question="Who?", passage=DUNE, passages=[DUNE], examples="few", rationale=True)
    shown = [json.loads(line.removeprefix("Reply: ")) for line in text.splitlines() if line.startswith("Reply: {")]
    assert len(shown) > 1
    assert all(list(example) == ["rationale", *reply] for example in shown)


def test_both_prompts_of_relevance_ask_the_same_of_a_passage():
    each, listed = (
        render_prompt(name, question="Who?", passage=DUNE, passages=[DUNE]) for name in ("teacher_relevance_each", "teacher_relevance")
    )
    same = "A paragraph that holds only a part of what a longer question needs is not sufficient."
    for text in (each, listed):
        assert "relevant to the question and sufficient to answer it on its own, without " in text
        assert same in text
        assert "together" not in text
