"""RQ-RAG's generator, tuned on pairs of its own paths (DPO, Rafailov et al. 2023) to prefer the one that ends in a right answer."""

from collections.abc import Callable

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.records import Passage, Preference
from refinery.tasks.base import PairTask, edit_steps
from refinery.tasks.refinement import generator_card


def _edited(pair: Preference, edit: Callable[[Passage], Passage]) -> Preference:
    return pair.model_copy(update={side: edit_steps(getattr(pair, side), edit) for side in ("chosen", "rejected")})


TASK = PairTask(
    name="preference",
    record=Preference,
    control_tokens=RQ_RAG,
    edit_passages=_edited,
    card=lambda recipe: generator_card(
        "Refines its own search queries with control tokens, searches and answers (RQ-RAG). Tuned with DPO on its own paths.", recipe
    ),
)
