"""Leave out gold answers that no search finds, such as emoticons and rare spellings (RA-ISF App. B, after Lewis et al. 2020)."""

from collections.abc import Sequence

from distill.label_context import LabelContext
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Question
from refinery.metrics.open_domain import dpr_has_answer


async def with_found_answers(question: Question, context: LabelContext, k: int) -> Question:
    """The question with those of its gold answers that are in the first `k` passages. Raises RejectedRow if none of them is."""
    passages = await context.search(question.text, question, k=k) if question.answers else []
    found = answers_in([passage.text for passage in passages], question.answers)
    if question.answers and not found:
        raise RejectedRow("no_answer_found", f"none of the gold answers of question {question.id} is in the first {k} passages")
    return question.model_copy(update={"answers": found})


def answers_in(texts: Sequence[str], answers: Sequence[str]) -> list[str]:
    """The answers that at least one text contains, by DPR's has_answer."""
    found = set[str]()
    for text in texts:
        left = [answer for answer in answers if answer not in found]
        if dpr_has_answer(text, left):
            found.update(answer for answer in left if dpr_has_answer(text, [answer]))
    return [answer for answer in answers if answer in found]
