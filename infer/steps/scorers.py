"""Score how well passages support a statement: rerankers (a query and passages) and entailment judges (a hypothesis and premises).

There are four scorers: word overlap, a cross-encoder, label probabilities of the model that plays a role, and prompting the decoder's LLM.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from infer.prompt_fitting import count_shortened, fit_passages, fit_text
from infer.session import Session
from infer.steps.ask import ask_json, read_label
from refinery.contract.chat_template import frame_tokens
from refinery.contract.records import Passage
from refinery.contract.segments import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.base import LLM, Usage
from refinery.passages.corpus import searched_text
from refinery.prompts.render import render_prompt
from refinery.retrievers.search.cross_encoder import CrossEncoder
from refinery.tasks import relevance
from refinery.text import quoted, without_breaks

_NLI_LABELS = ("0", "1")
_NLI_TOKENS = 512  # T5's training length; its positions are relative, so the model itself would accept a longer premise
_BESIDE_PROMPT = 2  # the encoder's end token, and the label


class Scorer(Protocol):
    """Scores passages against one statement; each scorer has its own scale."""

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """One score per passage, higher is better; `passages` must not be empty. Only scores from the same call can be compared."""
        ...


class LexicalScorer:
    """BM25 of the statement over the passages of one call; 0 for a passage that shares no word with it."""

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; document frequencies are counted over `passages`."""
        from refinery.retrievers.bm25 import Bm25, Options  # imports numpy, so it is imported only for scoring

        index = Bm25([passage.model_copy(update={"id": str(i)}) for i, passage in enumerate(passages)], Options(stemmer=None))
        found = {hit.passage.id: hit.retrieval_score for hit in await index.search(statement, k=len(passages))}
        return [found.get(str(i), 0.0) for i in range(len(passages))]


@dataclass(frozen=True, slots=True)
class CrossEncoderScorer:
    """A cross-encoder's raw logits (MIGRES Sec. 4.1: BGE-reranker-base)."""

    model: CrossEncoder

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; concurrent calls for other questions share its batches."""
        return await self.model.score(statement, [searched_text(passage).strip() for passage in passages])


@dataclass(frozen=True, slots=True)
class LabelScorer:
    """The probability of the last of `labels` after `prompt(statement, passage)` under the model that plays `role`; generates no text.

    The tokens that it reads are added to the question's cost, but it does not count as a call: MIGRES Table 4 counts only calls of the LLM
    that generates text. A passage that is too long for the model is cut at its end, and a step of the trace, named after the role, says
    how many passages were cut. An encoder cuts and counts by itself.
    """

    role: str
    session: Session
    depth: int
    prompt: Callable[[str, Passage], str]
    labels: tuple[str, str]
    most_tokens: int | None = None

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; a probability, normalized over the two labels."""
        read, fitted = self._fitting(statement, passages)
        if shortened := count_shortened(fitted, passages):
            self.session.record(self.role, statement, depth=self.depth, shortened=shortened)
        return list(await asyncio.gather(*(self._probability(self.prompt(read, passage)) for passage in fitted)))

    async def _probability(self, prompt: str) -> float:
        usage = Usage()
        context = self._llm.context(prompt, usage=usage)
        probs = await read_label(self.role, context, self.labels, self.session.question.text, self.session, depth=self.depth)
        self.session.usage.prefill_tokens += usage.prefill_tokens
        self.session.usage.prefill_at_most |= usage.prefill_at_most
        return probs[self.labels[1]]

    @property
    def _llm(self) -> LLM:
        return self.session.sub_models.get(self.role, self.session.llm)

    def _fitting(self, statement: str, passages: Sequence[Passage]) -> tuple[str, Sequence[Passage]]:
        """The statement and passages, shortened to the model's limit; the statement may take at most half of it."""
        limits = [limit for limit in (self.most_tokens, self._llm.context_limit) if limit is not None]
        if not limits:
            return statement, passages
        tokenizer = self._llm.token_counter
        statement = fit_text(statement, min(limits) // 2, tokenizer)
        most = min(limits) - _BESIDE_PROMPT - frame_tokens(tokenizer)
        return statement, [self._fit(statement, passage, most, tokenizer) for passage in passages]

    def _fit(self, statement: str, passage: Passage, most: int, tokenizer: Tokenizer) -> Passage:
        """The passage, shortened until its prompt takes at most `most` tokens, because quoting its lines takes tokens too."""
        fitted, token_budget = passage, most - self._tokens(statement, Passage(id="", text=""), tokenizer)
        while True:
            fitted = fit_passages([fitted], max(token_budget, 0), tokenizer)[0]
            is_quoted = any(quoted(text) != text for text in (fitted.title, fitted.text))
            excess = self._tokens(statement, fitted, tokenizer) - most if is_quoted else 0
            if excess <= 0 or not fitted.text:
                return fitted
            token_budget -= excess

    def _tokens(self, statement: str, passage: Passage, tokenizer: Tokenizer) -> int:
        return len(encode_text(self.prompt(statement, passage), tokenizer))


def relevance_judge(role: str, session: Session, *, depth: int) -> LabelScorer:
    """A trained relevance judge of any model family: the probability of " relevant"."""
    return LabelScorer(role, session, depth, relevance.relevance_prompt, relevance.TASK.labels)


def nli_judge(role: str, session: Session, *, depth: int) -> LabelScorer:
    """An NLI model such as google/t5_xxl_true_nli_mixture: the probability of "1", that the passage entails the statement."""
    return LabelScorer(role, session, depth, _nli_prompt, _NLI_LABELS, most_tokens=_NLI_TOKENS)


def _nli_prompt(hypothesis: str, premise: Passage) -> str:
    """One line, as T5's tokenizer writes any text."""
    return render_prompt("nli", premise=without_breaks(searched_text(premise).strip()), hypothesis=without_breaks(hypothesis))


class _Entailment(BaseModel):
    entails: bool


class PromptedEntailment:
    """Asks the decoder's own LLM once per passage: 1 if it says that the passage entails the statement, otherwise 0."""

    def __init__(self, session: Session, *, depth: int, max_new_tokens: int) -> None:
        self._session, self._depth, self._max_new_tokens = session, depth, max_new_tokens

    async def score(self, statement: str, passages: Sequence[Passage]) -> list[float]:
        """See `Scorer.score`; a reply that cannot be used counts as 0."""
        return list(await asyncio.gather(*(self._entails(statement, searched_text(passage).strip()) for passage in passages)))

    async def _entails(self, hypothesis: str, premise: str) -> float:
        prompt = render_prompt("migres_entailment", hypothesis=hypothesis, premise=premise)
        reply = await ask_json(
            "entailment", prompt, _Entailment, hypothesis, self._session, depth=self._depth, max_new_tokens=self._max_new_tokens
        )
        return float(reply is not None and reply.entails)
