import pytest

from infer.evaluation.evaluate import evaluate
from infer.evaluation.scores import QuestionScores, score
from refinery.contract.records import Question, SubQuestion
from refinery.contract.trace import Cost, Prediction

ONE_HOP = Question(id="a", text="Who?", answers=["Lyon"], type="single_hop", decomposition=[SubQuestion(text="Who?")])
TWO_HOPS = Question(id="b", text="Where?", answers=["Oslo", "Kristiania"], type="two_hop", decomposition=[SubQuestion(text="Who?")] * 2)
AMBIGUOUS = Question(id="c", text="Which?", answers=["Rome"], type="ambiguous")


def answered(questions: list[Question], answers: list[str]) -> tuple[list[QuestionScores], list[Prediction]]:
    cost = Cost(calls=4, retrievals=2, prefill_tokens=30, decode_tokens=10)
    predictions = [
        Prediction(question_id=q.id, question=q.text, answer=answer, trace=[], cost=cost)
        for q, answer in zip(questions, answers, strict=True)
    ]
    return score("rag", questions, predictions), predictions


def results(questions: list[Question], answers: list[str], *, seconds: float = 1.0) -> dict:
    return evaluate(*answered(questions, answers), seconds=seconds)["rag"]


def test_scores_are_percentages_over_each_group():
    scores = results([ONE_HOP, TWO_HOPS, AMBIGUOUS], ["Lyon", "the Kristiania", "Oslo"])
    assert {group: scores[group]["em"] for group in ("all", "single_hop", "multi_hop", "two_hop", "ambiguous")} == {
        "all": 66.67,
        "single_hop": 100.0,
        "multi_hop": 100.0,
        "two_hop": 100.0,
        "ambiguous": 0.0,
    }
    assert scores["single_hop"]["questions"] == 1


def test_every_metric_has_its_interval():
    scores = results([ONE_HOP.model_copy(update={"id": str(i)}) for i in range(100)], ["Lyon", "Oslo"] * 50)
    found = scores["all"]["metrics"]["em.squad"]
    assert (found["mean"], found["questions"]) == (50.0, 100)
    assert 38 <= found["low"] <= 42
    assert 58 <= found["high"] <= 62
    assert {"f1.squad", "f1.musique", "has_answer.dpr", "match.popqa"} <= set(scores["all"]["metrics"])


def test_a_metrics_questions_are_those_it_applies_to():
    closed = AMBIGUOUS.model_copy(update={"answers": ["yes"]})
    metrics = results([ONE_HOP, closed], ["Lyon", "Yes"])["all"]["metrics"]
    assert (metrics["accuracy.yesno"]["mean"], metrics["accuracy.yesno"]["questions"]) == (100.0, 1)
    assert "accuracy.choice" not in metrics


@pytest.mark.parametrize(
    ("datasets", "metrics"),
    [
        (["musique"], ["em.squad", "f1.musique"]),
        (["hotpotqa", "musique"], ["em.squad", "f1.hotpotqa", "f1.musique"]),
        (["a set of your own"], ["em.squad", "f1.squad"]),
        (["arc"], ["match.selfrag"]),  # these have no choices
        (["asqa"], ["em.squad", "f1.squad"]),  # these have no readings
    ],
)
def test_the_default_metrics_are_the_datasets_that_apply(datasets, metrics):
    questions = [ONE_HOP.model_copy(update={"id": dataset, "dataset": dataset}) for dataset in datasets]
    assert results(questions, ["Lyon"] * len(datasets))["default_metrics"] == metrics


def test_costs_are_per_question():
    rows, predictions = answered([ONE_HOP, TWO_HOPS], ["x", "x"])
    cost = {"calls": 4.0, "retrievals": 2.0, "prefill_tokens": 30.0, "decode_tokens": 10.0}
    read = dict.fromkeys(("passages_per_iteration", "passages_per_call", "passages_in_answer", "knowledge_tokens"), 0.0)
    spent = cost | {"seconds": 1.5, "iterations": 1.0} | read
    assert evaluate(rows, predictions, seconds=3.0)["rag"]["cost_per_question"] == spent


def test_tokens_that_a_server_may_have_had_in_its_cache_are_marked():
    rows, predictions = answered([ONE_HOP, TWO_HOPS], ["x", "x"])
    hidden = predictions[1].cost.model_copy(update={"prefill_at_most": True})
    found = evaluate(rows, [predictions[0], predictions[1].model_copy(update={"cost": hidden})], seconds=3.0)["rag"]["cost_per_question"]
    assert (found["prefill_at_most"], found["prefill_tokens"]) == (True, 30.0)


def test_a_question_without_gold_answers_is_not_scored():
    scores = results([Question(id="a", text="Who?")], ["Lyon"])["all"]
    assert (scores["questions"], scores["em"], scores["f1"], scores["metrics"]) == (1, None, None, {})


def test_only_questions_with_gold_answers_make_up_a_mean():
    questions = [Question(id="a", text="Who?", answers=["Lyon"]), Question(id="b", text="Where?")]
    scores = results(questions, ["Lyon", "Paris"])["all"]
    assert scores["questions"] == 2
    assert (scores["metrics"]["em.squad"]["mean"], scores["metrics"]["em.squad"]["questions"]) == (100.0, 1)
