"""Why an answer is wrong: the first thing that went wrong on the way to it."""

import pytest

from infer.evaluation.error_cause import why_wrong
from refinery.contract.records import Passage, Question, Step, Trajectory
from refinery.contract.trace import Cost, Prediction, ScoredPassage, TraceStep

QUESTION = Question(id="q", text="Who?", answers=["Torvel"], supporting=["a", "b"])
ASKED = TraceStep(name="answer", depth=0, question="Who?", text="Oslo")


def prediction(*trace, answer="Oslo", failed=None):
    cost = Cost(calls=1, retrievals=1, prefill_tokens=1, decode_tokens=1)
    return Prediction(question_id="q", question="Who?", answer=answer, trace=[*trace], cost=cost, failed=failed)


def found(*ids, name="retrieve", question="Who?"):
    hits = [ScoredPassage(id=id_, title=id_.upper(), text="text", retrieval_score=1.0) for id_ in ids]
    return TraceStep(name=name, depth=0, question=question, passages=hits)


def judged(title, share, question="Who?"):
    probabilities = {" relevant": share, " irrelevant": 1 - share}
    return TraceStep(name="relevance", depth=0, question=question, text=title, probabilities=probabilities)


def fault(reason):
    return TraceStep(name="fault", depth=0, question="Who?", text=f"{reason}: and so on")


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ([ASKED], "not searched"),
        ([found(), ASKED], "not retrieved"),
        ([found("x", "y"), ASKED], "not retrieved"),
        ([found("a", "x"), ASKED], "partly retrieved"),
        ([found("a", "b"), ASKED], "misread"),
        ([found("a"), found("b", question="then?"), ASKED], "misread"),
        ([found("a", "b"), judged("A", 0.9), judged("B", 0.2), ASKED], "retrieved but judged irrelevant"),
        ([found("a", "b"), judged("A", 0.9), judged("B", 0.5), ASKED], "misread"),
        ([found("a", "b"), judged("A", 0.9), judged("B", 0.1), found("b", question="B?"), judged("B", 0.8, "B?"), ASKED], "misread"),
        ([found("a", "b", "x"), found("a", "x", name="filter"), ASKED], "retrieved but judged irrelevant"),
        ([found("a", "b", "x"), found("b", "a", name="filter"), ASKED], "misread"),
        ([found("a", "b"), TraceStep(name="relevance", depth=0, question="Who?", text="[1] helps"), ASKED], "misread"),
        ([found("x"), ASKED, fault("truncated")], "truncated"),
        ([found("x"), ASKED, fault("unparsed")], "unparsed"),
        ([found("x"), ASKED, fault("malformed")], "unparsed"),
        ([found("x"), ASKED, fault("refused")], "fault"),
        ([found("x"), ASKED, fault("empty")], "fault"),
        ([found("a", "b"), ASKED, fault("truncated"), fault("unparsed")], "truncated"),
        ([found("a", "b"), fault("truncated"), ASKED], "misread"),  # an earlier reply, which the decoder survived
        ([found("a", "b"), ASKED, fault("speaker")], "misread"),  # says nothing about the answer
    ],
)
def test_the_first_thing_that_went_wrong_is_named(trace, why):
    assert why_wrong(QUESTION, prediction(*trace)) == why


def test_a_failed_question_is_a_fault():
    assert why_wrong(QUESTION, prediction(found("a", "b"), failed="search_failed: 503")) == "fault"


def test_without_supporting_ids_what_went_wrong_after_the_search_is_unknown():
    question = QUESTION.model_copy(update={"supporting": None})
    assert why_wrong(question, prediction(found("a"), ASKED)) == "unknown"
    assert why_wrong(question, prediction(found("a"), ASKED, fault("truncated"))) == "truncated"
    assert why_wrong(question, prediction(ASKED)) == "not searched"


def test_the_judge_is_read_by_the_runs_own_threshold():
    trace = [found("a", "b"), judged("A", 0.4), judged("B", 0.4), ASKED]
    assert why_wrong(QUESTION, prediction(*trace)) == "retrieved but judged irrelevant"
    assert why_wrong(QUESTION, prediction(*trace), relevance_threshold=0.4) == "misread"


@pytest.mark.parametrize(
    ("passages", "answer", "right_elsewhere", "why"),
    [
        (["a", "b"], "Oslo", True, "another path is right"),
        (["a", "b"], "Oslo", False, "misread"),
        (["a"], "Oslo", False, "partly retrieved"),
        (["x"], "Oslo", False, "not retrieved"),
        (None, "Oslo", False, "not searched"),
        (["a", "b"], " ", False, "fault"),
    ],
)
def test_of_a_tree_the_selected_path_counts(passages, answer, right_elsewhere, why):
    hits = [Passage(id=id_, text="text") for id_ in passages or []]
    searched = [] if passages is None else [Step(action="rewrite", text="who", passages=hits)]
    path = Trajectory(question_id="q", question="Who?", steps=[*searched, Step(action="answer", text=answer)])
    trace = [found("a", "b"), fault("refused")]  # of other paths
    assert why_wrong(QUESTION, prediction(*trace), path=path, right_elsewhere=right_elsewhere) == why
