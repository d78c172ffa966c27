"""Self-knowledge labels (RA-ISF App. A.1): the target model answers closed-book, and its answer is compared with the gold answers."""

from distill.bench import Bench
from distill.teacher import RejectedRow
from refinery.metrics.squad import exact_match
from refinery.prompts.render import render_prompt
from refinery.records import KnowledgeLabel, Question

NEEDS = ("target",)


async def label(question: Question, bench: Bench) -> list[KnowledgeLabel]:
    """`know` when the target's closed-book answer equals a gold answer (Eq. 5), else `unknow`."""
    if not question.answers:
        raise RejectedRow("no_gold_answer", f"question {question.id} has no gold answers to compare with")
    assert bench.target is not None
    context = bench.target.context(render_prompt("answer_direct", question=question.text))
    reply = (await context.generate(max_new_tokens=bench.recipe.max_new_tokens)).text
    return [
        KnowledgeLabel(
            question_id=question.id,
            question=question.text,
            label="know" if exact_match(reply, question.answers) else "unknow",
            reply=reply,
            provenance=bench.provenance(),
        )
    ]
