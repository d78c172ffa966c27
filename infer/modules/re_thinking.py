"""re-thinking's judgment of knowledge (Sec. 3.2), and its sub-query (Sec. 3.4), which reads the known answers as its analysis."""

from infer.decoders.re_thinking import Knowledge, Options, filtered, missing_query
from infer.modules.base import DecoderModules, Module
from infer.modules.kinds.base import Case
from infer.modules.kinds.queries import QUERIES
from infer.modules.kinds.relevance import RELEVANCE
from infer.session import Session
from refinery.contract.module_output import ModuleOutput


async def _relevance(case: Case, session: Session, options: Options) -> ModuleOutput:
    """A passage that the judgment does not remove is kept."""
    knowledge = Knowledge(list(enumerate(case.passages, 1)))
    kept = await filtered(case.question, knowledge, session, options.model_copy(update={"relevance": "filter"}))
    numbers = {number for number, _ in kept.passages}
    return ModuleOutput(labels=[number in numbers for number, _ in knowledge.passages])


async def _query(case: Case, session: Session, options: Options) -> ModuleOutput:
    """No text if the model says that nothing is missing."""
    query = await missing_query(case.question, Knowledge([]), "; ".join(case.information), session, options)
    return ModuleOutput(texts=[query] if query else [])


MODULES = DecoderModules({"relevance": Module(RELEVANCE, _relevance, ("relevance",)), "query": Module(QUERIES, _query, ("query",))})
