"""The scores of each question, by system and metric. They are stored in `scores.jsonl`, so runs are compared without their questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refinery.contract.records import Question, Record, Trajectory, iter_records
from refinery.contract.trace import Prediction
from refinery.metrics.registry import METRICS, find_metric, score_all

SCORES_FILE = "scores.jsonl"
JUDGEMENTS_FILE = "judgements.jsonl"


class QuestionScores(Record):
    """One question's scores, 0 to 1, by system and metric; metrics that do not apply to it are left out.

    `groups` are the kinds of question under which it is reported, in addition to `all`.
    """

    question_id: str
    dataset: str
    groups: list[str]
    scores: dict[str, dict[str, float]]


class JudgedAnswer(Record):
    """The reply of the LLM `model` about one answer; `prompt` is its prompt's hash, `implied` is None for neither yes nor no."""

    question_id: str
    answer: str
    reply: str
    implied: bool | None
    model: str
    prompt: str


JudgedAnswers = Mapping[tuple[str, str], JudgedAnswer]


def read_judgements(run: Path) -> JudgedAnswers:
    """A judge's replies about the run's answers, by question id and answer."""
    path = run / JUDGEMENTS_FILE
    rows = iter_records(path, JudgedAnswer) if path.exists() else ()
    return {(row.question_id, row.answer): row for row in rows}


@dataclass(frozen=True, slots=True)
class _Given:
    """What a system gave for one question: answers, of which the best counts, and the passages found on each path that leads to them."""

    answers: Sequence[str | None]
    retrieved: Sequence[Sequence[str] | None]


def score(
    name: str,
    questions: Sequence[Question],
    predictions: Sequence[Prediction | None],
    judgements: JudgedAnswers | None = None,
    metrics: Sequence[str] = (),
) -> list[QuestionScores]:
    """Every metric that applies, one row per question.

    A question without an answer (None, or failed) is wrong; one without a gold answer is not scored. `metrics` are scored in addition to
    the built-in ones. A tree decoder gives one system per selection, and the upper bound: the best of its paths (RQ-RAG Sec. 2.3).
    """
    predictions = [prediction if prediction and prediction.has_answer else None for prediction in predictions]
    names = list(dict.fromkeys((*METRICS, *metrics)))
    columns = {
        system: _columns(given, names, questions, judgements or {}, best=system == _bound(name))
        for system, given in _systems(name, predictions)
    }
    several = len({question.dataset for question in questions}) > 1
    return [
        QuestionScores(
            question_id=question.id,
            dataset=question.dataset,
            groups=groups_of(question, several),
            scores={
                system: {metric: float(values[row]) for metric, values in metrics.items() if not np.isnan(values[row])}
                for system, metrics in columns.items()
            },
        )
        for row, question in enumerate(questions)
    ]


def has_gold(question: Question) -> bool:
    """Whether the question has anything to score an answer against."""
    return bool(question.answers or question.disambiguations)


def groups_of(question: Question, several_datasets: bool) -> list[str]:
    """The dataset if there are several, the question's type, and its number of hops if its decomposition is annotated."""
    groups = [question.dataset] if several_datasets and question.dataset else []
    groups += [question.type] if question.type else []
    if question.decomposition:
        groups.append("multi_hop" if len(question.decomposition) > 1 else "single_hop")
    return list(dict.fromkeys(groups))


def _systems(name: str, predictions: Sequence[Prediction | None]) -> list[tuple[str, list[_Given]]]:
    if not any(prediction and prediction.selected for prediction in predictions):
        return [(name, [_Given([p.answer], [_found(p)]) if p else _NOTHING for p in predictions])]
    strategies = next(prediction.selected for prediction in predictions if prediction and prediction.selected)
    systems = [(f"{name}_{strategy}", [_selected(p, strategy) if p else _NOTHING for p in predictions]) for strategy in strategies]
    every = [_Given([path.answer for path in p.paths], [_on_path(path) for path in p.paths]) if p else _NOTHING for p in predictions]
    return [*systems, (_bound(name), every)]


def _bound(name: str) -> str:
    return f"{name}_upper_bound"


_NOTHING = _Given([None], [None])


def _selected(prediction: Prediction, strategy: str) -> _Given:
    """The selected answer, and every path that ends in it (RQ-RAG's sample_from_tree.py takes their mean)."""
    answer = prediction.selected[strategy]
    return _Given([answer], [_on_path(path) for path in prediction.paths if (path.answer or "") == answer])


def _found(prediction: Prediction) -> list[str]:
    return [passage.id for step in prediction.trace for passage in step.passages or []]


def _on_path(path: Trajectory) -> list[str]:
    return [passage.id for step in path.steps for passage in step.passages]


def _columns(
    given: Sequence[_Given], names: Sequence[str], questions: Sequence[Question], judgements: JudgedAnswers, *, best: bool
) -> dict[str, np.ndarray]:
    """Scores of shape (questions,) by metric; NaN where the metric does not apply."""
    texts, passages = ([name for name in names if find_metric(name).reads == read] for read in ("answer", "passages"))
    columns = _pooled(texts, [g.answers for g in given], questions, best=True)
    if judgements and not best:  # the judge sees only those of a tree's answers that a strategy selects
        verdicts = [[_verdict(question, answer, judgements) for answer in g.answers] for g, question in zip(given, questions, strict=True)]
        columns |= _pooled(["judge"], verdicts, questions, best=True)
    if _same_corpus(given, questions):
        columns |= _pooled(passages, [g.retrieved for g in given], questions, best=best)
    return {name: values for name, values in columns.items() if not np.isnan(values).all()}


def _verdict(question: Question, answer: str | None, judgements: JudgedAnswers) -> bool | None:
    """The judge's verdict; None, which scores as unanswered, if the answer is blank or the judge said neither yes nor no."""
    found = judgements.get((question.id, answer or ""))
    return found and found.implied


def _pooled(names: list[str], candidates: Sequence[Sequence[Any]], questions: Sequence[Question], *, best: bool) -> dict[str, np.ndarray]:
    """The best score among a question's candidates, or their mean."""
    sizes = np.array([len(some) for some in candidates])
    flat = score_all(
        names,
        [candidate for some in candidates for candidate in some],
        [question for question, some in zip(questions, candidates, strict=True) for _ in some],
    )
    starts = np.cumsum(sizes) - sizes
    if best:
        return {name: np.maximum.reduceat(values, starts) for name, values in flat.items()}
    return {name: np.add.reduceat(values, starts) / sizes for name, values in flat.items()}


def _same_corpus(given: Sequence[_Given], questions: Sequence[Question]) -> bool:
    """Whether the passages found share ids with the questions; a corpus with different ids cannot be scored for support."""
    known = {passage_id for question in questions for passage_id in question.supporting or []}
    known |= {passage.id for question in questions for passage in question.passages or []}
    return any(passage_id in known for g in given for ids in g.retrieved for passage_id in ids or [])
