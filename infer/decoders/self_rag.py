"""Self-RAG: the model says whether to search, and judges each passage and its own answer, by reflection tokens (Asai et al., 2023).

For short answers: one segment, no beam (Sec. 3.3; `run_short_form.py`). Every passage is read in a context of its own, and its answer
scored by the probabilities of the reflection tokens.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.ask import record_fault, reply_fault
from infer.steps.reasoning import UNKNOWN
from refinery.contract.control_tokens import SELF_RAG
from refinery.contract.records import Passage, Question
from refinery.contract.segments import Segment, control_token_id
from refinery.contract.trace import Prediction
from refinery.llms.base import Context, Generation, Need
from refinery.llms.softmax import softmax
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe

_TOKENS = {token.role: token.token for token in SELF_RAG}
# What each token of a kind is worth in its kind's score (App. A.3); of the first kind it is the share of [Relevant] alone.
_RELEVANCE = {"relevant": 1.0, "irrelevant": 0.0}
_SUPPORT = {"full_support": 1.0, "partial_support": 0.5, "no_support": 0.0}
_UTILITY = {"utility_1": -1.0, "utility_2": -0.5, "utility_3": 0.0, "utility_4": 0.5, "utility_5": 1.0}


class Options(Recipe):
    """When to search, and what the scores weigh. The paper reads five passages; its script's commands read ten."""

    mode: Literal["adaptive_retrieval", "always_retrieve", "no_retrieval"] = Field(
        default="adaptive_retrieval", description="when to search"
    )
    threshold: float = Field(
        default=0.2, description="adaptive: search above this share of [Retrieval]; the paper's value for short answers", ge=0, le=1
    )
    fidelity: Literal["paper", "official"] = Field(
        default="paper",
        description="the share is one of probabilities, or of log-probabilities as the script has it, where a likelier one is less",
    )
    relevance_weight: float = Field(default=1.0, description="of [Relevant] in an answer's score; the paper's value")
    support_weight: float = Field(default=1.0, description="of [Fully supported] and half of [Partially supported]; the paper's value")
    utility_weight: float = Field(default=0.5, description="of the mean of [Utility:1] to [Utility:5], as -1 to 1; the paper's value")
    sequence_score: bool = Field(
        default=True, description="add the answer's own probability by token (Sec. 3.3); the script's --use_seqscore"
    )
    aggregation: Literal["best", "sum"] = Field(
        default="best",
        description="the answer with the best score, or with the best sum over equal answers as the script has it for closed tasks",
    )
    instruction: str = Field(default="", description="of the task, before the question; the script has none for open questions")


def llm_needs(options: Options) -> frozenset[Need]:
    """What an endpoint must be able to do."""
    return frozenset[Need]({"token_ids", "control_tokens", "logprobs", "token_scores"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the model writes about one passage, and how it is judged."""

    reply: Generation
    relevance: float
    support: float
    utility: float

    @property
    def probability(self) -> float:
        """Of the reply, reflection tokens and all: the geometric mean over its tokens."""
        return math.exp(sum(self.reply.logprobs) / len(self.reply.logprobs)) if self.reply.logprobs else 0.0

    def score(self, options: Options) -> float:
        """f(y, d, Critique) (Sec. 3.3)."""
        critique = options.relevance_weight * self.relevance + options.support_weight * self.support + options.utility_weight * self.utility
        return critique + (self.probability if options.sequence_score else 0.0)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Search where the model asks for it; then an answer about each passage, or one without any."""
    prompt = session.context([Segment(render_prompt("self_rag", question=question.text, instruction=options.instruction), "prompt")])
    passages = await session.search(question.text) if await _retrieves(prompt, question.text, session, options) else []
    if not passages:
        reply = await prompt.extend([_control("no_retrieval")]).generate(max_new_tokens=session.max_new_tokens)
        _note(reply, question.text, session)
        return session.prediction(reply.text or UNKNOWN)
    candidates = await asyncio.gather(*(_candidate(prompt, passage, session) for passage in passages))
    for candidate in candidates:
        parts = {"relevance": candidate.relevance, "support": candidate.support, "utility": candidate.utility}
        _note(candidate.reply, question.text, session, probabilities=parts | {"score": candidate.score(options)})
    return session.prediction(_select(candidates, options) or UNKNOWN)


async def _retrieves(prompt: Context, question: str, session: Session, options: Options) -> bool:
    """Whether [Retrieval] is likely enough beside [No Retrieval] as the first token."""
    if options.mode != "adaptive_retrieval":
        return options.mode == "always_retrieve"
    logprobs = await _logprobs(prompt, ("retrieval", "no_retrieval"))
    share = logprobs[0] / sum(logprobs) if options.fidelity == "official" else softmax(logprobs)[0]
    session.record("needs_retrieval", question, depth=0, probabilities={_TOKENS["retrieval"]: share})
    return share > options.threshold


async def _candidate(prompt: Context, passage: Passage, session: Session) -> Candidate:
    """The answer about one passage. A kind of reflection token that the model did not write counts as 0."""
    evidence = Segment(f"{passage.title}\n{passage.text}", "evidence")
    context = prompt.extend([_control("retrieval"), _control("evidence_start"), evidence, _control("evidence_end")])
    relevance, reply = await asyncio.gather(_worth(context, _RELEVANCE), context.generate(max_new_tokens=session.max_new_tokens))
    support, utility = await asyncio.gather(*(_worth_where_written(context, reply, kind, session) for kind in (_SUPPORT, _UTILITY)))
    return Candidate(reply, relevance, support, utility)


async def _worth_where_written(context: Context, reply: Generation, kind: dict[str, float], session: Session) -> float:
    """The worth of a kind of token at the place where the model wrote the first of them."""
    token_ids = {control_token_id(_TOKENS[role], session.llm.tokenizer) for role in kind}
    place = next((i for i, token_id in enumerate(reply.token_ids) if token_id in token_ids), None)
    if place is None:
        return 0.0
    return await _worth(context.extend([Segment("", "answer", token_ids=tuple(reply.token_ids[:place]))]), kind)


async def _worth(context: Context, kind: dict[str, float]) -> float:
    """The mean worth of a kind of token as what comes next, over their probabilities normalised within the kind."""
    probs = softmax(await _logprobs(context, tuple(kind)))
    return sum(worth * share for worth, share in zip(kind.values(), probs, strict=True))


async def _logprobs(context: Context, roles: Sequence[str]) -> list[float]:
    scored = await asyncio.gather(*(context.score([_control(role)]) for role in roles))
    return [logprob for (logprob,) in scored]


def _select(candidates: Sequence[Candidate], options: Options) -> str:
    scores: dict[str, float] = {}
    for candidate in candidates:
        text, score = candidate.reply.text, candidate.score(options)
        scores[text] = scores.get(text, 0.0) + score if options.aggregation == "sum" else max(scores.get(text, score), score)
    return max(scores, key=scores.__getitem__)


def _control(role: str) -> Segment:
    return Segment(_TOKENS[role], "control_token")


def _note(reply: Generation, question: str, session: Session, **values: Any) -> None:
    session.record("answer", question, depth=0, text=reply.text, token_ids=reply.token_ids, logprobs=reply.logprobs, **values)
    if (fault := reply_fault(reply)) is not None:
        record_fault(session, question, fault[0], f"answer: {fault[1]}", depth=0)


DECODER = Decoder(decode, Options, needs_retriever=True, control_tokens=SELF_RAG, llm_needs=llm_needs)
