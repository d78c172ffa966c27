"""ALCE's prompting strategies (Gao et al., 2023), the baselines of MIGRES Table 3: one search, then an answer that cites its passages.

`vanilla_s` comes from MIGRES: it is VANILLA with irrelevant sentences removed. SUMM and SNIPPET condense each passage first. RERANK
samples several answers and takes the one that its citations support best.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.ask import record_fault
from infer.steps.calls import Calls, Limits
from infer.steps.condense import condense
from infer.steps.demonstrations import Examples, prompt_with, reason_with
from infer.steps.knowledge_filter import KnowledgeFilter
from infer.steps.reasoning import concluded
from infer.steps.scorers import LexicalScorer, PromptedEntailment, Scorer
from infer.steps.sentences import split_sentences
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Prediction
from refinery.runtime.recipe import Recipe

Shown = list[tuple[int, Passage]]  # by their numbers
_CITATION = re.compile(r"\[(\d+)\]")


class Options(Recipe):
    """The strategy and its parameters."""

    strategy: Literal["vanilla", "vanilla_s", "summ", "snippet", "rerank"] = Field(
        default="vanilla",
        description="vanilla: whole passages; vanilla_s: their relevant sentences; summ, snippet: passages that the model summarized or"
        " quoted; rerank: the sampled answer whose citations hold best",
    )
    examples: Examples = Field(default="zero", description="few: three worked examples; ALCE shows two, MIGRES Table 3 none")
    relevance_threshold: float = Field(
        default=4.0, description="vanilla_s: the lowest BM25 score of a sentence that is kept; see MIGRES' option of this name"
    )
    samples: int = Field(default=4, description="rerank: how many answers are sampled; the paper samples four", ge=2)
    temperature: float = Field(default=1.0, description="rerank: sampling temperature", gt=0)
    entailment: Literal["lexical", "llm"] = Field(
        default="lexical", description="rerank: what judges the citations, instead of the paper's T5-XXL NLI model"
    )
    max_reply_tokens: int = Field(default=300, description="maximum tokens of each reply", ge=1)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Search, condense the passages if the strategy does so, and answer."""
    found = await session.search(question.text)
    shown = await _shown(question.text, found, session, options)
    read = [passage for _, passage in shown]
    if options.strategy != "rerank":
        said = await _reply("answer", question.text, shown, session, options)
        return session.prediction(_answer(said, shown, question.text, session), read=read)
    drawn = (_reply("sample", question.text, shown, session, options, temperature=options.temperature) for _ in range(options.samples))
    replies = await asyncio.gather(*drawn)
    recalls = [await _citation_recall(reply, shown, session, options) for reply in replies]
    return session.prediction(_answer(replies[recalls.index(max(recalls))], shown, question.text, session), read=read)


async def _reply(role: str, question: str, shown: Shown, session: Session, options: Options, *, temperature: float = 0.0) -> str:
    passages, limit = [(number, passage.title, passage.text) for number, passage in shown], options.max_reply_tokens
    return await reason_with(
        options.examples, role, "alce_answer", question, session, passages=passages, max_new_tokens=limit, temperature=temperature
    )


def _answer(reply: str, shown: Shown, question: str, session: Session) -> str:
    """The answer at the end of the reply, without citations."""
    if unknown := {int(number) for number in _CITATION.findall(reply)} - {number for number, _ in shown}:
        record_fault(session, question, "uncited", f"no passage {sorted(unknown)} was shown", depth=0)
    return concluded(re.sub(r" *\[\d+\]", "", reply), question, session)


async def _shown(question: str, found: Sequence[Passage], session: Session, options: Options) -> Shown:
    """The passages as the prompt shows them; a passage keeps its number when others are left out."""
    if options.strategy == "vanilla_s":
        keeper = KnowledgeFilter(LexicalScorer(), options.relevance_threshold, sentence_level=True)
        hits = await keeper.keep(question, found)
        session.record("filter", question, depth=0, passages=hits)
        kept = {hit.passage.id: hit.passage for hit in hits}
        found = [kept.get(passage.id) or passage.model_copy(update={"text": ""}) for passage in found]
    if options.strategy == "summ" or options.strategy == "snippet":
        found = await condense(options.strategy, question, found, session, max_new_tokens=options.max_reply_tokens)
    return [(number, passage) for number, passage in enumerate(found, 1) if passage.text]


async def _citation_recall(reply: str, shown: Shown, session: Session, options: Options) -> float:
    """The fraction of sentences that are supported by the passages they cite; a sentence that cites nothing is not supported."""
    scorer: Scorer = LexicalScorer()
    if options.entailment == "llm":
        scorer = PromptedEntailment(session, depth=1, max_new_tokens=options.max_reply_tokens)
    texts = {number: f"{passage.title} {passage.text}" for number, passage in shown}
    sentences = split_sentences(reply)
    borne_out = 0
    for sentence in sentences:
        cited = " ".join(texts.get(int(number), "") for number in _CITATION.findall(sentence)).strip()
        borne_out += bool(cited) and (await scorer.score(_CITATION.sub("", sentence), [Passage(id="", text=cited)]))[0] > 0
    return borne_out / len(sentences) if sentences else 0.0


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One answer after one condensing call per passage, or several answers; a judge of citations is called once per sentence.

    A sentence usually has ten tokens or more, and a judge's reply may be corrected once.
    """
    most, found = options.max_reply_tokens, limits.passages
    answer = {"writes": most, "passages": found, "prompt": prompt_with(options.examples, "alce_answer")}
    if options.strategy == "rerank":
        cited = 2 * options.samples * (most // 10 + 1) if options.entailment == "llm" else 0
        judge = Calls("entailment", (0, cited), most, found, replies=3 * most, prompt="migres_entailment")
        return [Calls("sample", (options.samples, options.samples), **answer), judge]
    if options.strategy == "summ" or options.strategy == "snippet":
        shorter = Calls(options.strategy, (0, found), most, 1, prompt=f"condense_{options.strategy}")
        return [shorter, Calls("answer", (1, 1), **answer, replies=found * most)]
    return [Calls("answer", (1, 1), **answer)]


DECODER = Decoder(decode, Options, needs_retriever=True, plan=plan)
