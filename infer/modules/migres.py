"""MIGRES' modules (Sec. 3.2): the Leaf and Main Modules, the Query Generator, knowledge prompting, the first search and the reranker."""

from infer.decoders.migres import Memory, Modules, Options, cited_by
from infer.modules.base import DecoderModules, Module
from infer.modules.kinds.answers import OWN_KNOWLEDGE
from infer.modules.kinds.base import Case
from infer.modules.kinds.extraction import EXTRACTION
from infer.modules.kinds.first_search import FIRST_SEARCH
from infer.modules.kinds.missing_information import MISSING_INFORMATION
from infer.modules.kinds.queries import QUERIES
from infer.modules.kinds.relevance import RELEVANCE
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.prompts.replies import LeafReply


def _modules(case: Case, session: Session, options: Options) -> Modules:
    return Modules(session.question.text, session, options, Memory(list(case.asked), information=list(case.information)))


async def _leaf(case: Case, session: Session, options: Options) -> ModuleOutput:
    """Statements without a citation are left out, as in the decoder; the labels say which of the others are entailed."""
    modules, passages = _modules(case, session, options), case.passages
    reply = await modules.ask("leaf", LeafReply, case.question, passages=passages)
    said = [(item.info, cited) for item in (reply.useful_information if reply else []) if (cited := cited_by(item, passages))]
    entailed = [await modules.entailed(info, cited) for info, cited in said] if options.entailment != "none" else []
    return ModuleOutput(texts=[info for info, _ in said], cited=[[passage.id for passage in cited] for _, cited in said], labels=entailed)


async def _main(case: Case, session: Session, options: Options) -> ModuleOutput:
    reply = await _modules(case, session, options).main()
    if reply is None:
        return ModuleOutput()
    return ModuleOutput(texts=[reply.answer if reply.solved else reply.missing_information or ""], labels=[reply.solved])


async def _queries(case: Case, session: Session, options: Options) -> ModuleOutput:
    return ModuleOutput(texts=await _modules(case, session, options).query_generator(case.missing))


async def _own_knowledge(case: Case, session: Session, options: Options) -> ModuleOutput:
    """The model's own knowledge; an empty text counts as wrong (Table 7)."""
    return ModuleOutput(texts=[passage.text for passage in await _modules(case, session, options).own_knowledge([case.question])] or [""])


async def _first_search(case: Case, session: Session, options: Options) -> ModuleOutput:
    """The passages that pass, or if none does, the model's own knowledge (Sec. 3.2)."""
    modules = _modules(case, session, options)
    if hits := await modules.filtered_search(case.question):
        return ModuleOutput(texts=[hit.passage.text for hit in hits], cited=[[hit.passage.id] for hit in hits])
    return ModuleOutput(texts=[passage.text for passage in await modules.own_knowledge([case.question])])


async def _reranker(case: Case, session: Session, options: Options) -> ModuleOutput:
    """Scores on the reranker's own scale."""
    keeper = _modules(case, session, options).knowledge_filter()
    if keeper.reranker is None or not case.hits:
        return ModuleOutput(labels=[True] * len(case.hits), probabilities=[1.0] * len(case.hits))
    scores = await keeper.reranker.score(case.question, case.passages)
    return ModuleOutput(labels=[keeper.passes(score) for score in scores], probabilities=list(scores))


MODULES = DecoderModules(
    {
        "leaf": Module(EXTRACTION, _leaf, ("leaf", "entailment")),
        "main": Module(MISSING_INFORMATION, _main, ("main",)),
        "queries": Module(QUERIES, _queries, ("queries",)),
        "own_knowledge": Module(OWN_KNOWLEDGE, _own_knowledge),
        "first_search": Module(FIRST_SEARCH, _first_search, ("reranker",), loads=True),
        "reranker": Module(RELEVANCE, _reranker, ("reranker",), loads=True),
    }
)
