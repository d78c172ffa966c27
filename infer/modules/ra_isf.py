"""RA-ISF's sub-models, and the model that answers."""

import asyncio

from infer.decoders.ra_isf import (
    Options,
    answer_closed_book,
    answer_from_passages,
    decomposed,
    know_probability,
    relevance_probability,
    relevant_of_list,
)
from infer.modules.base import DecoderModules, Module
from infer.modules.kinds.answers import ANSWERS
from infer.modules.kinds.base import Case
from infer.modules.kinds.decomposition import DECOMPOSITION
from infer.modules.kinds.relevance import RELEVANCE
from infer.modules.kinds.self_knowledge import SELF_KNOWLEDGE
from infer.session import Session
from refinery.contract.trace import ModuleOutput


async def _self_knowledge(case: Case, session: Session, options: Options) -> ModuleOutput:
    """M_know, and the model's closed-book answer."""
    share = await know_probability(case.question, 0, session)
    answer = await answer_closed_book(case.question, 0, session)
    return ModuleOutput(texts=[answer], labels=[share >= options.know_threshold], probabilities=[share])


async def _relevance(case: Case, session: Session, options: Options) -> ModuleOutput:
    """M_rel; the prompt of App. D names passages without probabilities."""
    if options.relevance == "listwise":
        named = await relevant_of_list(case.question, case.passages, 0, session)
        return ModuleOutput(labels=[passage in named for passage in case.passages])
    probs = await asyncio.gather(*(relevance_probability(case.question, passage, 0, session) for passage in case.passages))
    return ModuleOutput(labels=[prob >= options.relevance_threshold for prob in probs], probabilities=list(probs))


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
