"""RA-ISF's sub-models, and the model that answers."""

from infer.decoders.ra_isf import (
    Options,
    answer_closed_book,
    answer_from_passages,
    decomposed,
    know_probability,
)
from infer.modules.base import DecoderModules, Module
from infer.modules.kinds.answers import ANSWERS
from infer.modules.kinds.base import Case
from infer.modules.kinds.decomposition import DECOMPOSITION
from infer.modules.kinds.relevance import RELEVANCE
from infer.modules.kinds.self_knowledge import SELF_KNOWLEDGE
from infer.session import Session
from infer.steps.relevance import judge_relevance
from refinery.contract.module_output import ModuleOutput


async def _self_knowledge(case: Case, session: Session, options: Options) -> ModuleOutput:
    """M_know, and the model's closed-book answer."""
    share = await know_probability(case.question, 0, session)
    answer = await answer_closed_book(case.question, 0, session)
    return ModuleOutput(texts=[answer], labels=[share >= options.know_threshold], probabilities=[share])


async def _relevance(case: Case, session: Session, options: Options) -> ModuleOutput:
    """M_rel; the prompt of App. D names passages without probabilities."""
    judged = await judge_relevance(case.question, case.passages, 0, session, options)
    return ModuleOutput(labels=judged.labels, probabilities=judged.probabilities)


async def _decomposition(case: Case, session: Session, options: Options) -> ModuleOutput:
    """M_decom."""
    texts = await decomposed(case.question, 0, session, max_new_tokens=options.max_sub_question_tokens)
    return ModuleOutput(texts=texts, unread=not texts)


async def _answer(case: Case, session: Session, options: Options) -> ModuleOutput:
    """M(q, P_rel)."""
    return ModuleOutput(texts=[await answer_from_passages(case.passages, case.question, 0, session)])


MODULES = DecoderModules(
    {
        "self_knowledge": Module(SELF_KNOWLEDGE, _self_knowledge, ("self_knowledge",)),
        "relevance": Module(RELEVANCE, _relevance, ("relevance",)),
        "decomposition": Module(DECOMPOSITION, _decomposition, ("decomposition",)),
        "answer": Module(ANSWERS, _answer),
    }
)
