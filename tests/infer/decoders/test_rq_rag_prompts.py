"""The baselines as RQ-RAG prompted them."""

import pytest
from helpers.baselines import FILM, PERSON, QUERY, RUNS, faults, solve


@pytest.mark.parametrize(
    ("named", "queries", "missing"),
    [
        ("1. Who directed Dune?\n2. Where was #1 born?\n3. When?", ["Who directed Dune?", "Where was #1 born?"], []),
        ("1. Who directed Dune?", ["Who directed Dune?", QUERY], []),
        ("It is simple.", [QUERY, QUERY], ["unparsed"]),
    ],
)
@pytest.mark.parametrize("decoder", ["chain_of_thought", "chain_of_note"])
def test_rq_rags_prompt_shows_two_simpler_questions_with_what_is_found_for_each(decoder, named, queries, missing):
    prediction, llm, searched = solve(decoder, [named, "Q1: The answer is Maria.\nQ3: The answer is Lyon."], prompt="rq_rag")
    assert (prediction.answer, prediction.cost.calls, searched.calls, faults(prediction)) == ("Lyon", 2, queries, missing)
    asked = llm.calls[-1].text
    places = [asked.index(line) for line in (f"Q1: {queries[0]}\nP1:\nDune:", f"Q2: {queries[1]}\nP2:\nDune:", f"Q3: {QUERY}")]
    assert places == sorted(places)


def test_rq_rags_chain_of_thought_shows_no_passages_without_a_retriever():
    prediction, llm, _ = solve("chain_of_thought", ["1. Who?", "The answer is Lyon."], prompt="rq_rag", retriever=False)
    assert (prediction.answer, prediction.cost.retrievals) == ("Lyon", 0)
    assert "Q1: Who?\nP1:\nQ2:" in llm.calls[-1].text


def test_rq_rags_chain_of_thought_has_no_worked_examples():
    with pytest.raises(ValueError, match="leave out 'examples: few'"):
        solve("chain_of_thought", ["The answer is Lyon."], prompt="rq_rag", examples="few")


def test_rq_rags_self_ask_puts_what_was_found_before_the_question():
    script, calls, queries = RUNS["self_ask"]
    prediction, llm, searched = solve("self_ask", script, prompt="rq_rag")
    assert (prediction.answer, prediction.cost.calls, searched.calls) == ("Lyon", calls, queries)
    before, _, after = llm.calls[-1].text.rpartition("\nQuestion: ")
    assert all(f"Context: {passage.title}: {passage.text}" in before for passage in (FILM, PERSON))
    assert "Context" not in after
