"""Control-token trajectories from the dataset's own annotation (RQ-RAG Sec. 2.1 with gold sub-questions for the teacher's).

Each sub-question is searched with the answers it refers to filled in; a question without a decomposition is searched as it is. A
trajectory whose searches miss a supporting passage is discarded, as the paper says.
"""

from distill.bench import Bench
from distill.gold import search_own, searchable_steps
from distill.teacher import RejectedRow
from refinery.records import Question, Step, Trajectory

NEEDS = ("retriever",)


async def label(question: Question, bench: Bench) -> list[Trajectory]:
    """One trajectory that ends in the first gold answer, or RejectedRow with the reason."""
    if not question.answers:
        raise RejectedRow("no_gold_answer", f"question {question.id} has no gold answer to end in")
    if not question.supporting:
        raise RejectedRow("no_support_annotated", f"question {question.id} names no supporting passages to look for")
    steps = await _searches(question, bench)
    missed = set(question.supporting) - {passage.id for step in steps for passage in step.passages}
    if missed:
        raise RejectedRow("missed_support", f"no search found {', '.join(sorted(missed))}")
    return [
        Trajectory(
            question_id=question.id,
            question=question.text,
            steps=[*steps, Step(action="answer", text=question.answers[0])],
            provenance=bench.provenance(),
        )
    ]


async def _searches(question: Question, bench: Bench) -> list[Step]:
    queries = [step.text for step in searchable_steps(question)]
    if len(queries) > bench.recipe.max_steps:
        raise RejectedRow("too_many_steps", f"{len(queries)} sub-questions, max_steps is {bench.recipe.max_steps}")
    if not queries:
        return [Step(action="rewrite", text=question.text, passages=await search_own(question.text, question, bench))]
    return [Step(action="decompose", text=query, passages=await search_own(query, question, bench)) for query in queries]
