"""How well texts bear out a statement: rerankers (a query and passages) and entailment judges (a hypothesis and premises).

Two implementations that need no model of their own. A trained cross-encoder is a third, when there is one.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel

from infer.ask import ask_json
from infer.tools import Tools
from refinery.prompts.render import render_prompt
from refinery.records import Passage


class Scorer(Protocol):
    """Scores texts against one statement; the scale is the scorer's own."""

    async def score(self, statement: str, texts: Sequence[str]) -> list[float]:
        """One score per text, higher is better; `texts` is not empty. Scores of one call can be compared."""
        ...


class LexicalScorer:
    """BM25 of the statement over the texts of one call, 0 for a text that shares no word with it."""

    async def score(self, statement: str, texts: Sequence[str]) -> list[float]:
        """See `Scorer.score`; words are as rare as they are among `texts`."""
        from refinery.retrievers.bm25 import Bm25, Options  # numpy; not before something is scored

        index = Bm25([Passage(id=str(i), text=text) for i, text in enumerate(texts)], Options(stemmer=None))
        found = {hit.passage.id: hit.retrieval_score for hit in await index.search(statement, k=len(texts))}
        return [found.get(str(i), 0.0) for i in range(len(texts))]


class _Entailment(BaseModel):
    entails: bool


class PromptedEntailment:
    """Asks the decoder's own LLM, one call a text: 1 where it says that the text entails the statement, else 0."""

    def __init__(self, tools: Tools, *, depth: int, max_new_tokens: int) -> None:
        self._tools, self._depth, self._max_new_tokens = tools, depth, max_new_tokens

    async def score(self, statement: str, texts: Sequence[str]) -> list[float]:
        """See `Scorer.score`; a reply that cannot be used counts as 0."""
        return list(await asyncio.gather(*(self._entails(statement, text) for text in texts)))

    async def _entails(self, hypothesis: str, premise: str) -> float:
        prompt = render_prompt("migres_entailment", hypothesis=hypothesis, premise=premise)
        reply = await ask_json(
            "entailment", prompt, _Entailment, hypothesis, self._tools, depth=self._depth, max_new_tokens=self._max_new_tokens
        )
        return float(reply is not None and reply.entails)
