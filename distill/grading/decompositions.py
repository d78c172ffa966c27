"""Grades of decompositions: sub-questions against annotated ones, matched so that they share the most words."""

from collections.abc import Mapping, Sequence

from distill.task_grades import Grader, GradingContext, Outcome, labels_of
from refinery.contract.records import Decomposition, Question, SubQuestion
from refinery.contract.sub_questions import fill_references
from refinery.metrics.graded import Graded, overlap
from refinery.metrics.sub_questions import best_match


async def _grade(question: Question, outcome: Outcome, context: GradingContext) -> Mapping[str, Graded]:
    """Precision and recall of sub-questions, each by its token F1 with the annotated one that it is matched with.

    `same count` is the share of decompositions with as many sub-questions as annotated. `answerable` is the share of the annotated
    steps whose passage is among the first that the matched sub-question finds in the question's own passages, with earlier answers filled
    in. It applies to annotated sub-questions too, where it shows what the search can reach.
    """
    steps = question.decomposition
    if not steps:
        return {}
    hits, given, same, found = 0.0, 0, 0, 0
    labels: Sequence[Decomposition] = labels_of(outcome)
    for label in labels:
        matched = best_match(label.sub_questions, steps)
        hits += sum(score for _, score in matched.values())
        given += len(label.sub_questions)
        same += len(label.sub_questions) == len(steps)
        found += await _num_found(label, {number: steps[step] for number, (step, _) in matched.items()}, question, context)
    rows = len(labels) or 1
    counts = overlap(hits, given, len(steps) * rows) | {"same count": (same, len(labels))}
    if question.passages and (searched := sum(bool(step.supporting) for step in steps)):
        counts["answerable"] = (found, searched * rows)
    return {"annotated sub-questions": Graded(counts, hits)}


async def _num_found(label: Decomposition, matched: Mapping[int, SubQuestion], question: Question, context: GradingContext) -> int:
    """How many matched steps name a passage that the sub-question finds among the question's own."""
    answers = [(matched[number].answer if number in matched else None) or "" for number in range(len(label.sub_questions))]
    found = 0
    for number, step in matched.items():
        if step.supporting and question.passages:
            query = fill_references(label.sub_questions[number], answers)
            hits = {passage.id for passage in await context.search(query, question)}
            found += not hits.isdisjoint(step.supporting)
    return found


DECOMPOSITION = Grader(Decomposition, _grade)
