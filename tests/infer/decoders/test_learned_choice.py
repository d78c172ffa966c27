"""How a selector's probabilities choose among the paths of a tree, also in a stored run."""

import math

import pytest

from infer.evaluation.compare import compare
from infer.evaluation.rescore import rescore
from infer.steps.selection import LEARNED, STRATEGIES, Definition, path_values, select, select_all, strategies_of
from infer.viewing.page import write
from infer.viewing.plot import panels
from refinery.contract.records import Question, Step, Trajectory, read_records
from refinery.contract.trace import PREDICTIONS_FILE, Cost, Prediction
from refinery.errors import RunDirError
from refinery.text import normalize_answer

QUESTION = Question(id="q", text="Who directed Dune?", answers=["Maria Dune"], split="test")


def path(answer: str, share: float | None, *logprobs: float) -> Trajectory:
    steps = [Step(action="answer", text=answer, logprobs=[-0.1, *logprobs])]
    return Trajectory(question_id="q", question="Who?", steps=steps, right_probability=share)


TREE = [path("Oslo", 0.1, -0.2), path("Torvel", 0.5, -1.0), path("torvel.", 0.8, -1.5, -0.5), path("", 0.9, -0.01)]


def test_learned_selection_equals_an_independent_computation():
    votes: dict[str, float] = {}
    for one in TREE:
        product = one.right_probability * math.prod(math.exp(logprob) for step in one.steps for logprob in step.logprobs)
        votes[normalize_answer(one.answer)] = votes.get(normalize_answer(one.answer), 0) + (product if one.answer else 0)
    assert max(votes, key=votes.get) == "torvel"
    for fidelity in ("paper", "fixed"):
        assert select(TREE, LEARNED, Definition(fidelity)) == "Torvel"
        assert sum(path_values(TREE, LEARNED, Definition(fidelity))) == pytest.approx(sum(votes.values()))
    assert select(TREE, "ensemble", Definition("fixed")) == "Oslo"


@pytest.mark.parametrize(("weight", "answer"), [(0.0, "Torvel"), (0.5, "Torvel"), (3.0, "Oslo")])
def test_the_generators_weight_says_how_much_its_own_probability_counts(weight, answer):
    votes: dict[str, float] = {}
    for one in TREE:
        logprob = sum(logprob for step in one.steps for logprob in step.logprobs)
        vote = one.right_probability * math.exp(weight * logprob) if one.answer else 0.0
        votes[normalize_answer(one.answer)] = votes.get(normalize_answer(one.answer), 0.0) + vote
    assert select(TREE, LEARNED, Definition("paper", generator_weight=weight)) == answer
    assert max(votes, key=votes.get) == normalize_answer(answer)


def test_a_tree_without_a_selector_has_three_strategies():
    unjudged = [path("Oslo", None, -0.2), path("Torvel", 0.5, -1.0)]
    assert strategies_of(unjudged) == STRATEGIES == tuple(select_all(unjudged, Definition("paper")))
    assert strategies_of(TREE) == (*STRATEGIES, LEARNED) == tuple(select_all(TREE, Definition("paper")))


# Stored runs


@pytest.fixture
def tree_run(stored_run):
    """A stored run over a judged tree, or one without a selector."""

    def write_run(tree=TREE, *, name="rq_rag"):
        cost = Cost(calls=3, retrievals=2, prefill_tokens=9, decode_tokens=3)
        selected = select_all(tree, Definition("fixed"))
        prediction = Prediction(
            question_id="q", question=QUESTION.text, answer=selected["ensemble"], trace=[], cost=cost, paths=tree, selected=selected
        )
        return stored_run(name, [QUESTION], [prediction], decoder="rq_rag", options={"fidelity": "fixed"})

    return write_run


UNJUDGED = [one.model_copy(update={"right_probability": None}) for one in TREE]


def test_a_stored_tree_is_selected_again_by_its_probabilities(tree_run):
    folder = tree_run()
    assert rescore(folder, selection="learned")["rescored_with"] == {"selection": "learned"}
    assert read_records(folder / PREDICTIONS_FILE, Prediction)[0].answer == "Torvel"


def test_an_older_run_is_scored_again_but_not_by_a_selector(tree_run):
    folder = tree_run(UNJUDGED)
    assert set(rescore(folder)["results"]) == {"rq_rag_ppl", "rq_rag_confidence", "rq_rag_ensemble", "rq_rag_upper_bound"}
    with pytest.raises(RunDirError, match="no selector has judged its trees. Decode it again with a selector"):
        rescore(folder, selection="learned")


def test_old_and_new_runs_stand_side_by_side(tree_run, tmp_path, read_page):
    runs = [tree_run(), tree_run(UNJUDGED, name="older")]
    labels = [line.system.label for line in compare(runs, baseline="rq_rag_ensemble")]
    assert "rq_rag_learned" in labels
    assert "older_learned" not in labels
    assert write(runs, tmp_path / "page.html", limit=None) == 1
    index, (detail,) = read_page(tmp_path / "page.html")
    views = [shown["views"] for shown in index["runs"]]
    assert ["learned" in names for names in views] == [True, False]
    selection = detail["runs"][0]["selections"]["learned"]
    assert (selection["by"], selection["keys"]) == ("sum", ["oslo", "torvel", "torvel", ""])
    assert {panel.name for panel in panels(runs)} >= {"selections", "actions"}


def test_the_page_opens_with_the_view_that_answers(tree_run, tmp_path, read_page):
    folder = tree_run()
    rescore(folder, selection="learned", fidelity="paper")
    write([folder], tmp_path / "page.html", limit=None)
    shown = read_page(tmp_path / "page.html")[0]["runs"][0]
    assert shown["views"][shown["own"]] == "learned"
