"""Self-RAG's critique of its own text: the probabilities of its reflection tokens, passage by passage (Sec. 3.3, App. A.3)."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from infer.session import Session
from refinery.contract.control_tokens import SELF_RAG
from refinery.contract.records import Passage
from refinery.contract.segments import Segment, control_token_id
from refinery.llms.base import Context
from refinery.llms.softmax import softmax

TOKENS = {token.role: token.token for token in SELF_RAG}
# The weight of each token in the score of its kind (App. A.3); for relevance only the probability of [Relevant] counts.
RELEVANCE = {"relevant": 1.0, "irrelevant": 0.0}
SUPPORT = {"full_support": 1.0, "partial_support": 0.5, "no_support": 0.0}
UTILITY = {"utility_1": -1.0, "utility_2": -0.5, "utility_3": 0.0, "utility_4": 0.5, "utility_5": 1.0}


class Weights(Protocol):
    """The options that weigh the parts of a score."""

    relevance_weight: float
    support_weight: float
    utility_weight: float
    sequence_score: bool


@dataclass(frozen=True, slots=True)
class Critique:
    """The model's assessment of its text about a passage. `probability` is the geometric mean over the text's tokens."""

    relevance: float
    support: float
    utility: float
    probability: float

    def score(self, weights: Weights) -> float:
        """The score f(y, d, Critique) (Sec. 3.3)."""
        critique = weights.relevance_weight * self.relevance + weights.support_weight * self.support
        critique += weights.utility_weight * self.utility
        return critique + (self.probability if weights.sequence_score else 0.0)

    def parts(self, weights: Weights) -> dict[str, float]:
        """The parts of the score and the score, for the trace."""
        return {"relevance": self.relevance, "support": self.support, "utility": self.utility, "score": self.score(weights)}


def control(role: str) -> Segment:
    """The reflection token with this role."""
    return Segment(TOKENS[role], "control_token")


def after_passage(context: Context, passage: Passage) -> Context:
    """The context after inserting a passage, as plain text, for the model to continue."""
    evidence = Segment(f"{passage.title}\n{passage.text}", "evidence")
    return context.extend([control("retrieval"), control("evidence_start"), evidence, control("evidence_end")])


async def critique_of(context: Context, token_ids: Sequence[int], logprobs: Sequence[float], session: Session) -> Critique:
    """The critique of tokens written in a context. A kind of reflection token that the model did not write scores 0."""
    written = (_worth_where_written(context, token_ids, kind, session) for kind in (SUPPORT, UTILITY))
    relevance, support, utility = await asyncio.gather(_worth(context, RELEVANCE), *written)
    return Critique(relevance, support, utility, math.exp(sum(logprobs) / len(logprobs)) if logprobs else 0.0)


async def retrieval_share(context: Context, *, of_logprobs: bool = False) -> float:
    """The share of [Retrieval] against [No Retrieval] as the next token; `of_logprobs`: of log-probabilities, as in the short script."""
    logprobs = await _logprobs(context, ("retrieval", "no_retrieval"))
    return logprobs[0] / sum(logprobs) if of_logprobs else softmax(logprobs)[0]


async def _worth_where_written(context: Context, token_ids: Sequence[int], kind: dict[str, float], session: Session) -> float:
    """The score of a kind of token at the position where the model first wrote one of them."""
    wanted = {control_token_id(TOKENS[role], session.llm.tokenizer) for role in kind}
    place = next((i for i, token_id in enumerate(token_ids) if token_id in wanted), None)
    if place is None:
        return 0.0
    return await _worth(context.extend([Segment("", "answer", token_ids=tuple(token_ids[:place]))]), kind)


async def _worth(context: Context, kind: dict[str, float]) -> float:
    """The expected weight of a kind of token at the next position, over their probabilities, normalized within the kind."""
    probs = softmax(await _logprobs(context, tuple(kind)))
    return sum(worth * share for worth, share in zip(kind.values(), probs, strict=True))


async def _logprobs(context: Context, roles: Sequence[str]) -> list[float]:
    scored = await asyncio.gather(*(context.score([control(role)]) for role in roles))
    return [logprob for (logprob,) in scored]
