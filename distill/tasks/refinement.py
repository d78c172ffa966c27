"""Control-token trajectories (RQ-RAG Sec. 2.1): rewrite, decompose or disambiguate, search, and so on, then an answer regenerated
from what the searches found. A trajectory that misses the supporting passages or a gold answer is discarded, as the paper says."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from distill.bench import Bench
from distill.teacher import Asked, RejectedRow
from refinery.metrics.squad import exact_match
from refinery.prompts.render import render_prompt
from refinery.records import Question, Step, Trajectory

NEEDS = ("teacher", "retriever")


class Reply(BaseModel):
    """The teacher's next step."""

    action: Literal["rewrite", "decompose", "disambiguate", "answer", "give_up"]
    text: Annotated[str, Field(min_length=1)]


async def label(question: Question, bench: Bench) -> list[Trajectory]:
    """One trajectory, or RejectedRow with the reason."""
    assert bench.teacher is not None
    asked, steps = Asked(), list[Step]()
    while True:
        prompt = render_prompt("teacher_refinement", question=question.text, steps=steps)
        reply = await bench.teacher.ask(prompt, Reply, asked)
        if reply.action == "give_up":
            raise RejectedRow("gave_up", reply.text)
        if reply.action == "answer":
            steps.append(Step(action="answer", text=reply.text.strip()))
            break
        if len(steps) == bench.recipe.max_steps:
            raise RejectedRow("too_many_steps", f"no answer after {len(steps)} searches")
        steps.append(Step(action=reply.action, text=reply.text.strip(), passages=await bench.search(reply.text, question)))
    trajectory = Trajectory(
        question_id=question.id,
        question=question.text,
        steps=steps,
        provenance=bench.provenance(prompt="teacher_refinement", asked=asked),
    )
    _check(trajectory, question)
    return [trajectory]


def _check(trajectory: Trajectory, question: Question) -> None:
    found = {passage.id for step in trajectory.steps for passage in step.passages}
    missed = set(question.supporting or []) - found
    if len(trajectory.steps) > 1 and missed:
        raise RejectedRow("missed_support", f"no search found {', '.join(sorted(missed))}")
    if question.answers and not exact_match(trajectory.answer or "", question.answers):
        raise RejectedRow("wrong_answer", f"answered {trajectory.answer!r}, gold {question.answers[0]!r}")
