"""Sub-questions that a model wrote against annotated ones, matched so that they share the most words."""

from collections.abc import Sequence

from refinery.contract.records import SubQuestion
from refinery.contract.relation_notation import readable
from refinery.contract.sub_questions import resolved_step
from refinery.metrics.squad import token_f1


def best_match(sub_questions: Sequence[str], steps: Sequence[SubQuestion]) -> dict[int, tuple[int, float]]:
    """The annotated step of each sub-question and their token F1, such that the sum is the largest and no step is matched twice.

    Dynamic programming over the steps that are taken: annotated decompositions have few.
    """
    wanted = _wordings(steps)
    best: dict[int, tuple[float, dict[int, tuple[int, float]]]] = {0: (0.0, {})}  # by the set of taken steps, as bits
    for number, text in enumerate(sub_questions):
        scores = [token_f1(text, texts) for texts in wanted]
        for taken, (total, matched) in list(best.items()):
            for step, score in enumerate(scores):
                also = taken | 1 << step
                if score and also != taken and total + score > best.get(also, (0.0, {}))[0]:
                    best[also] = total + score, matched | {number: (step, score)}
    return max(best.values(), key=lambda one: one[0])[1]


def _wordings(steps: Sequence[SubQuestion]) -> list[list[str]]:
    """The texts of each step: as annotated and with the answers filled in, in relation notation and as questions. Any may be written."""
    wordings = (steps, readable(steps))
    resolved = [[resolved_step(wording, number) for number in range(len(steps))] for wording in wordings]
    return [[step.text for wording in (*wordings, *resolved) if (step := wording[number])] for number in range(len(steps))]
