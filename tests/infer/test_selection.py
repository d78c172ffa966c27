"""Selection of a path (RQ-RAG Sec. 2.3), `paper` to the letter and `fixed`."""

import math

import pytest

from infer.selection import STRATEGIES, confidence, perplexity, select
from refinery.records import Step, Trajectory

both = pytest.mark.parametrize("fidelity", ["paper", "fixed"])


def path(answer: str, logprobs: list[float], *, query: list[float] | None = None) -> Trajectory:
    """A finished path; the first log-probability of a step belongs to the control token that opens it."""
    steps = [Step(action="rewrite", text="query", logprobs=query)] if query else []
    return Trajectory(question_id="q", question="Who?", steps=[*steps, Step(action="answer", text=answer, logprobs=logprobs)])


def test_perplexity_is_over_everything_the_model_wrote():
    assert perplexity(path("Lyon", [-1.0, -2.0], query=[-0.5, -0.5])) == pytest.approx(math.exp(4.0 / 4))


def test_the_papers_confidence_is_the_sum_over_the_answers_tokens():
    assert confidence(path("Lyon", [-9.0, -1.0, -2.0], query=[-5.0]), fidelity="paper") == pytest.approx(-3.0)


def test_the_fixed_confidence_is_their_geometric_mean():
    assert confidence(path("Lyon", [-9.0, -1.0, -2.0], query=[-5.0]), fidelity="fixed") == pytest.approx(math.exp(-1.5))


@both
def test_the_least_perplexed_path_is_selected(fidelity):
    paths = [path("Lyon", [-1.0, -1.0]), path("Oslo", [-0.1, -0.1], query=[-0.2, -0.2]), path("Rome", [-0.1, -0.1], query=[-4.0, -4.0])]
    assert select(paths, "ppl", fidelity=fidelity) == "Oslo"


@both
def test_the_most_confident_answer_is_selected_whatever_its_queries_cost(fidelity):
    paths = [path("Lyon", [-0.1, -1.0]), path("Oslo", [-3.0, -0.1], query=[-9.0, -9.0])]
    assert select(paths, "confidence", fidelity=fidelity) == "Oslo"


def test_length_costs_confidence_in_the_paper_only():
    paths = [path("Lyon in France", [0.0, -0.2, -0.2, -0.2, -0.2]), path("Oslo", [0.0, -0.3])]
    assert select(paths, "confidence", fidelity="paper") == "Oslo"
    assert select(paths, "confidence", fidelity="fixed") == "Lyon in France"


def test_the_papers_ensemble_makes_an_answer_lose_by_being_found_often():
    paths = [path("Lyon", [0.0, -0.6]), path("Lyon", [0.0, -0.6]), path("Oslo", [0.0, -1.0])]
    assert select(paths, "ensemble", fidelity="paper") == "Oslo"
    assert select(paths, "ensemble", fidelity="fixed") == "Lyon"


def test_only_the_fixed_ensemble_counts_spellings_together():
    paths = [path("Oslo", [0.0, -0.2]), path("The Lyon.", [0.0, -0.5]), path("lyon", [0.0, -0.6])]
    assert select(paths, "ensemble", fidelity="paper") == "Oslo"
    assert select(paths, "ensemble", fidelity="fixed") == "The Lyon."


@both
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_first_path_wins_ties(fidelity, strategy):
    paths = [path("Lyon", [-0.5, -0.5]), path("Oslo", [-0.5, -0.5]), path("Rome", [-0.5, -0.5])]
    assert select(paths, strategy, fidelity=fidelity) == "Lyon"


@both
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_path_is_selected_by_every_strategy(fidelity, strategy):
    assert select([path("", [-0.5, -0.5])], strategy, fidelity=fidelity) == ""


def test_paths_that_the_model_would_hardly_take_weigh_little_in_the_fixed_ensemble():
    unlikely = [path("Rome", [-0.1, -0.1], query=[-8.0, -2.0]) for _ in range(5)]
    assert select([*unlikely, path("Lyon", [-0.1, -0.5], query=[-0.1, -0.2])], "ensemble", fidelity="fixed") == "Lyon"
