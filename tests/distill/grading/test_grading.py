"""How labels are compared with annotations, case by case and against the slow way."""

import asyncio
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distill.grading.decompositions import DECOMPOSITION
from distill.grading.judgements import SELECTION
from distill.grading.trajectories import TRAJECTORIES
from distill.task_grades import GradingContext
from distill.tasks.selection import Options
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Decomposition, Passage, Question, SelectionLabel, Step, SubQuestion, Trajectory
from refinery.metrics.classification import accuracy, label_f1
from refinery.metrics.graded import graded_labels
from refinery.metrics.squad import token_f1
from refinery.metrics.sub_questions import best_match
from refinery.retrievers.candidates import Candidates

ASKED = {"question_id": "q", "question": "Where was Dune's director born?"}
STEPS = [
    SubQuestion(text="Who directed Dune?", answer="Maria Torvel", supporting=["dune"]),
    SubQuestion(text="Where was #1 born?", answer="Lyon", supporting=["torvel"]),
]
PASSAGES = [
    Passage(id="dune", title="Dune", text="Dune is a film directed by Maria Torvel."),
    Passage(id="torvel", title="Maria Torvel", text="Maria Torvel was born in Lyon."),
    *(Passage(id=f"other{number}", title=f"Town {number}", text="A town with a film festival.") for number in range(8)),
]
QUESTION = Question(id="q", text=ASKED["question"], answers=["Lyon"], passages=PASSAGES, supporting=["dune", "torvel"], decomposition=STEPS)
REJECTED = RejectedRow("refused", "no")


def graded(grader, outcome, *, question=QUESTION, options=None):
    """The one grade of an outcome."""
    (found,) = asyncio.run(grader.grade(question, outcome, GradingContext(options, {}, Candidates()))).values()
    return found


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_grades_of_labels_are_the_projects_own_f1_and_accuracy(pairs):
    said, gold = ([str(side[place]) for side in pairs] for place in (0, 1))
    counts = graded_labels(pairs).counts
    hits, total = counts["F1"]
    assert (hits / total if total else 0.0) == pytest.approx(label_f1(said, gold, positive="True"))
    right, judged = counts["accuracy"]
    assert right / judged == pytest.approx(accuracy(said, gold))


WORDS = st.lists(st.sampled_from("who what lyon dune born directed".split()), min_size=1, max_size=4).map(" ".join)


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_the_best_match_is_as_good_as_the_best_of_all_assignments(written, annotated):
    steps = [SubQuestion(text=text) for text in annotated]
    matched = best_match(written, steps)
    assert len({step for step, _ in matched.values()}) == len(matched)
    padded = [*annotated, *[""] * len(written)]
    tried = (
        sum(token_f1(text, [gold]) for text, gold in zip(written, order, strict=False)) for order in permutations(padded, len(written))
    )
    assert sum(score for _, score in matched.values()) == pytest.approx(max(tried))


@pytest.mark.parametrize(
    ("sub_questions", "hits", "same", "answerable"),
    [
        (["Who directed Dune?", "Where was #1 born?"], 2.0, 1, 2),
        (["Who directed Dune?", "Where was Maria Torvel born?"], 2.0, 1, 2),
        (["Where was #2 born?", "Who directed Dune?"], 1.75, 1, 2),
        (["Who directed Dune?"], 1.0, 0, 1),
        (["Is it blue", "or green", "or red"], 0.0, 0, 0),
    ],
)
def test_sub_questions_are_matched_with_annotated_ones_and_searched(sub_questions, hits, same, answerable):
    found = graded(DECOMPOSITION, [Decomposition(**ASKED, sub_questions=sub_questions)])
    assert found.counts["precision"] == (pytest.approx(hits), len(sub_questions))
    assert found.counts["recall"] == (pytest.approx(hits), 2)
    assert (found.counts["same count"], found.counts["answerable"]) == ((same, 1), (answerable, 2))


def test_a_rejected_decomposition_misses_every_step():
    counts = graded(DECOMPOSITION, REJECTED).counts
    assert (counts["precision"], counts["recall"], counts["same count"], counts["answerable"]) == ((0.0, 0), (0.0, 2), (0, 0), (0, 2))


def path(answer: str, *found: int) -> Trajectory:
    searches = [Step(action="decompose", text="Who?", passages=[PASSAGES[number]]) for number in found]
    return Trajectory(**ASKED, steps=[*searches, Step(action="answer", text=answer)])


@pytest.mark.parametrize(
    ("outcome", "recall", "em", "searches"),
    [([path("Lyon", 0, 1)], 1.0, 1.0, 2), ([path("Oslo", 0, 5)], 0.5, 0.0, 2), ([path("Lyon")], 0.0, 1.0, 0), (REJECTED, 0.0, 0.0, 0)],
)
def test_a_trajectory_is_graded_by_what_it_found_and_answered(outcome, recall, em, searches):
    found = graded(TRAJECTORIES, outcome)
    assert (found.counts["support recall"], found.counts["em.squad"]) == ((recall, 1), (em, 1))
    assert found.counts["searches"] == (searches, 0 if outcome is REJECTED else 1)
    assert found.correct == em


def test_a_path_is_graded_by_its_answer():
    labels = [SelectionLabel(**ASKED, path=path(answer), label=label) for answer, label in (("Lyon", "right"), ("Oslo", "right"))]
    assert graded(SELECTION, labels, options=Options()).counts["precision"] == (1, 2)
