import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer.evaluate import evaluate
from infer.selection import STRATEGIES, select
from infer.trace import Cost, Prediction
from refinery.records import Question, Step, SubQuestion, Trajectory

ONE_HOP = Question(id="a", text="Who?", answers=["Lyon"], type="single_hop", decomposition=[SubQuestion(text="Who?")])
TWO_HOPS = Question(id="b", text="Where?", answers=["Oslo", "Kristiania"], type="two_hop", decomposition=[SubQuestion(text="Who?")] * 2)
AMBIGUOUS = Question(id="c", text="Which?", answers=["Rome"], type="ambiguous")


def prediction(question: Question, answer: str, **values) -> Prediction:
    cost = Cost(calls=4, retrievals=2, prefill_tokens=30, decode_tokens=10)
    return Prediction(question_id=question.id, question=question.text, answer=answer, trace=[], cost=cost, **values)


def test_scores_are_percentages_over_each_group():
    questions = [ONE_HOP, TWO_HOPS, AMBIGUOUS]
    predictions = [prediction(q, answer) for q, answer in zip(questions, ["Lyon", "the Kristiania", "Oslo"], strict=True)]
    scores = evaluate("rag", questions, predictions, seconds=6.0)["rag"]
    assert {group: scores[group]["em"] for group in ("all", "single_hop", "multi_hop", "two_hop", "ambiguous")} == {
        "all": 66.67,
        "single_hop": 100.0,
        "multi_hop": 100.0,
        "two_hop": 100.0,
        "ambiguous": 0.0,
    }
    assert scores["single_hop"]["questions"] == 1


def test_costs_are_per_question():
    scores = evaluate("rag", [ONE_HOP, TWO_HOPS], [prediction(ONE_HOP, "x"), prediction(TWO_HOPS, "x")], seconds=3.0)
    assert scores["rag"]["cost_per_question"] == {
        "calls": 4.0,
        "retrievals": 2.0,
        "prefill_tokens": 30.0,
        "decode_tokens": 10.0,
        "seconds": 1.5,
    }


def test_a_question_without_gold_answers_scores_nothing():
    asked = Question(id="a", text="Who?")
    assert evaluate("rag", [asked], [prediction(asked, "Lyon")], seconds=1.0)["rag"]["all"] == {"questions": 1, "em": 0.0, "f1": 0.0}


logprobs = st.lists(st.floats(-8, 0), min_size=2, max_size=4)
answers = st.sampled_from(["Lyon", "lyon", "Lyon city", "Oslo", ""])
paths = st.builds(
    lambda text, values: Trajectory(question_id="a", question="Who?", steps=[Step(action="answer", text=text, logprobs=values)]),
    answers,
    logprobs,
)


@pytest.mark.parametrize("fidelity", ["paper", "fixed"])
@given(trees=st.lists(st.lists(paths, min_size=1, max_size=6), min_size=1, max_size=4))
def test_the_upper_bound_is_at_least_every_selection(fidelity, trees):
    questions = [ONE_HOP.model_copy(update={"id": str(i)}) for i in range(len(trees))]
    selections = [{strategy: select(tree, strategy, fidelity=fidelity) for strategy in STRATEGIES} for tree in trees]
    predictions = [
        prediction(question, selected["ensemble"], paths=tree, selected=selected)
        for question, tree, selected in zip(questions, trees, selections, strict=True)
    ]
    results = evaluate("rq_rag", questions, predictions, seconds=1.0)
    assert set(results) == {"rq_rag_ppl", "rq_rag_confidence", "rq_rag_ensemble", "rq_rag_upper_bound"}
    for metric in ("em", "f1"):
        assert all(results["rq_rag_upper_bound"]["all"][metric] >= scores["all"][metric] for scores in results.values())
