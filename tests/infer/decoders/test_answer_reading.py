"""Where in a model's reply its answer is."""

import pytest
from helpers.baselines import faults, solve
from hypothesis import given
from hypothesis import strategies as st

from infer.steps.reasoning import UNKNOWN, final_answer


@pytest.mark.parametrize("decoder", ["direct", "rag", "chain_of_thought", "iter_retgen", "self_ask"])
def test_what_a_reasoning_model_thinks_is_never_its_answer(decoder):
    reply = "<think>The answer is Oslo. Follow up: Oslo?</think>The answer is Lyon."
    prediction, _, searched = solve(decoder, lambda text: reply)
    assert "Lyon" in prediction.answer
    assert not any("Oslo" in text for text in (prediction.answer, *searched.calls))
    assert "Oslo" in next(step.reasoning for step in prediction.trace if step.reasoning)


def test_a_model_that_was_cut_while_reasoning_is_truncated():
    prediction, _, _ = solve("direct", lambda text: f"<think>{'Oslo? ' * 40}")
    assert (prediction.answer, faults(prediction)) == (UNKNOWN, ["truncated"])


@pytest.mark.parametrize("decoder", ["direct", "rag", "replug"])
@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("The answer to the question is: Lyon.", "Lyon"),
        ("**Lyon**", "Lyon"),
        ("Lyon.\nIt is a city in France.", "Lyon"),
        ("Lyon", "Lyon"),
    ],
)
def test_a_short_answer_is_asked_for_and_read_out_of_its_sentence(decoder, reply, answer):
    prediction, llm, _ = solve(decoder, lambda text: reply, answer_style="short")
    assert prediction.answer == answer
    assert all("shortest possible answer" in call.text for call in llm.calls)


def test_a_sentence_without_a_stated_answer_is_counted():
    reply = "Maria Torvel, who directed the film Dune, was born in the French city of Lyon"
    prediction, _, _ = solve("rag", lambda text: reply, answer_style="short")
    assert (prediction.answer, faults(prediction)) == (reply, ["unparsed"])


def test_the_papers_prompts_are_as_they_were():
    prediction, llm, _ = solve("rag", lambda text: "It is Lyon. The answer is: Lyon.")
    assert (prediction.answer, faults(prediction)) == ("It is Lyon. The answer is: Lyon.", [])
    assert "shortest possible answer" not in llm.calls[0].text


@given(st.text(max_size=20), st.from_regex(r"[A-Za-z0-9]+( [A-Za-z0-9]+)?", fullmatch=True))
def test_the_last_stated_answer_is_found_whatever_stands_before_it(before, answer):
    assert final_answer(f"{before}\nThe answer is {answer}.") == answer
    assert final_answer(f"{before}\nSo the final answer is: {answer}\n") == answer


def test_an_intermediate_answer_is_no_final_one():
    assert final_answer("Intermediate answer: Maria Torvel") is None
