"""How well passages bear out a statement: rerankers (a query and passages) and entailment judges (a hypothesis and premises).

By words alone, by a cross-encoder, by a label read of the model that plays a role, or by asking the decoder's LLM.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from infer.fitting import count_shortened, fit_passages, fit_text
from infer.session import Session
from infer.steps.ask import ask_json, read_label
from refinery.contract.chat_template import frame_tokens
from refinery.contract.records import Passage
from refinery.contract.segments import encode_text
from refinery.llms.base import LLM, Usage
from refinery.passages.corpus import searched_text
from refinery.prompts.render import render_prompt
from refinery.retrievers.search.cross_encoder import CrossEncoder
from refinery.tasks import relevance

_NLI_LABELS = ("0", "1")
_NLI_TOKENS = 512  # T5's length; its positions are relative, so nothing else would stop a longer premise
_BESIDE_PROMPT = 2  # the end token that an encoder gets, and the label


class Scorer(Protocol):
    """Scores passages against one statement; the scale is the scorer's own."""

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """One score per passage, higher is better; `passages` is not empty. Scores of one call can be compared."""
        ...


class LexicalScorer:
    """BM25 of the statement over the passages of one call, 0 for one that shares no word with it."""

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; words are as rare as they are among `passages`."""
        from refinery.retrievers.bm25 import Bm25, Options  # numpy; not before something is scored

        index = Bm25([passage.model_copy(update={"id": str(i)}) for i, passage in enumerate(passages)], Options(stemmer=None))
        found = {hit.passage.id: hit.retrieval_score for hit in await index.search(statement, k=len(passages))}
        return [found.get(str(i), 0.0) for i in range(len(passages))]


@dataclass(frozen=True, slots=True)
class CrossEncoderScorer:
    """A cross-encoder's raw logits (MIGRES Sec. 4.1: BGE-reranker-base)."""

    model: CrossEncoder

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; what other questions ask for meanwhile shares its batches."""
        return await self.model.score(statement, [searched_text(passage).strip() for passage in passages])


@dataclass(frozen=True, slots=True)
class LabelScorer:
    """How probable the model that plays `role` finds the last of `labels` after `prompt(statement, passage)`; nothing is written.

    The tokens that it reads are the question's cost, its reads are no calls: MIGRES' Table 4 counts those of the LLM that writes. A
    passage that is too long for it loses its end, and a step of the trace, named by the role, says how many did. An encoder cuts and
    counts by itself.
    """

    role: str
    session: Session
    depth: int
    prompt: Callable[[str, Passage], str]
    labels: tuple[str, str]
    most_tokens: int | None = None

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; a probability, normalised over the two labels."""
        read, fitted = self._fitting(statement, passages)
        if shortened := count_shortened(fitted, passages):
            self.session.record(self.role, statement, depth=self.depth, shortened=shortened)
        return list(await asyncio.gather(*(self._probability(self.prompt(read, passage)) for passage in fitted)))

    async def _probability(self, prompt: str) -> float:
        usage = Usage()
        context = self._llm.context(prompt, usage=usage)
        probs = await read_label(self.role, context, self.labels, self.session.question.text, self.session, depth=self.depth)
        self.session.usage.prefill_tokens += usage.prefill_tokens
        return probs[self.labels[1]]

    @property
    def _llm(self) -> LLM:
        return self.session.sub_models.get(self.role, self.session.llm)

    def _fitting(self, statement: str, passages: Sequence[Passage]) -> tuple[str, Sequence[Passage]]:
        """What the model has room for: half of it is the statement's at most."""
        limits = [limit for limit in (self.most_tokens, self._llm.context_limit) if limit is not None]
        if not limits:
            return statement, passages
        tokenizer = self._llm.token_counter
        statement = fit_text(statement, min(limits) // 2, tokenizer)
        bare = self.prompt(statement, Passage(id="", text=""))
        token_budget = min(limits) - _BESIDE_PROMPT - frame_tokens(tokenizer) - len(encode_text(bare, tokenizer))
        return statement, [fit_passages([passage], max(token_budget, 0), tokenizer)[0] for passage in passages]


def relevance_judge(role: str, session: Session, *, depth: int) -> LabelScorer:
    """A relevance judge that `train` made, of any family: how probable it finds " relevant"."""
    return LabelScorer(role, session, depth, relevance.relevance_prompt, relevance.TASK.labels)


def nli_judge(role: str, session: Session, *, depth: int) -> LabelScorer:
    """An NLI model as google/t5_xxl_true_nli_mixture is: how probable it finds "1", that the passage entails the statement."""
    return LabelScorer(role, session, depth, _nli_prompt, _NLI_LABELS, most_tokens=_NLI_TOKENS)


def _nli_prompt(hypothesis: str, premise: Passage) -> str:
    return render_prompt("nli", premise=searched_text(premise).strip(), hypothesis=hypothesis)


class _Entailment(BaseModel):
    entails: bool


class PromptedEntailment:
    """Asks the decoder's own LLM, one call a passage: 1 where it says that the passage entails the statement, else 0."""

    def __init__(self, session: Session, *, depth: int, max_new_tokens: int) -> None:
        self._tools, self._depth, self._max_new_tokens = session, depth, max_new_tokens

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; a reply that cannot be used counts as 0."""
        return list(await asyncio.gather(*(self._entails(statement, searched_text(passage).strip()) for passage in passages)))

    async def _entails(self, hypothesis: str, premise: str) -> float:
        prompt = render_prompt("migres_entailment", hypothesis=hypothesis, premise=premise)
        reply = await ask_json(
            "entailment", prompt, _Entailment, hypothesis, self._tools, depth=self._depth, max_new_tokens=self._max_new_tokens
        )
        return float(reply is not None and reply.entails)
