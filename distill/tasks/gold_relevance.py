"""Relevance labels from the dataset's own annotation: no teacher needed.

RA-ISF App. D calls a passage relevant when it alone is enough to answer. Where each step of a decomposition names its passages
(MuSiQue, 2WikiMultihopQA, StrategyQA), a passage is relevant to a sub-question that it supports, and to the whole question only
if it supports every step; so a question of two hops finds nothing relevant and is decomposed. HotpotQA annotates no steps: there
every supporting passage counts as relevant to the question, which is coarser than App. D.
"""

from distill.bench import Bench
from distill.gold import search_own, searchable_steps
from distill.teacher import RejectedRow
from refinery.records import Question, RelevanceLabel

NEEDS = ("retriever",)


async def label(question: Question, bench: Bench) -> list[RelevanceLabel]:
    """One label per retrieved passage, for the question and for each sub-question that can be searched."""
    provenance = bench.provenance()
    return [
        RelevanceLabel(
            question_id=question.id,
            question=asked,
            passage=passage,
            label="relevant" if passage.id in sufficient else "irrelevant",
            provenance=provenance,
        )
        for asked, sufficient in _sufficient_passages(question).items()
        for passage in await search_own(asked, question, bench)
    ]


def _sufficient_passages(question: Question) -> dict[str, set[str]]:
    """Ids of the passages that are enough alone, for the question and each searchable sub-question."""
    of_steps = [set(step.supporting) for step in question.decomposition or [] if step.supporting]
    if not of_steps and not question.supporting:
        raise RejectedRow("no_support_annotated", f"question {question.id} names no supporting passages")
    of_question = set.intersection(*of_steps) if of_steps else set(question.supporting or [])
    asked = {step.text: set(step.supporting) for step in searchable_steps(question) if step.supporting}
    return {question.text: of_question} | asked
