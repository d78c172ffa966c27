"""Self-RAG (Asai et al., 2023): reflection tokens say whether to search, and judge each passage and the model's own answer.

This is the decoder for short answers: one segment and no beam search (Sec. 3.3; `run_short_form.py`). Every passage is read in a
separate context, and its answer is scored by the probabilities of the reflection tokens.
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
from infer.steps.calls import Calls, Limits
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
# The weight of each token in the score of its kind (App. A.3); for relevance only the probability of [Relevant] counts.
_RELEVANCE = {"relevant": 1.0, "irrelevant": 0.0}
_SUPPORT = {"full_support": 1.0, "partial_support": 0.5, "no_support": 0.0}
_UTILITY = {"utility_1": -1.0, "utility_2": -0.5, "utility_3": 0.0, "utility_4": 0.5, "utility_5": 1.0}


class Options(Recipe):
    """When to search, and the weights of the scores. The paper reads five passages; the commands of its script read ten."""

    mode: Literal["adaptive_retrieval", "always_retrieve", "no_retrieval"] = Field(
        default="adaptive_retrieval", description="when to search"
    )
    threshold: float = Field(
        default=0.2,
        description="adaptive_retrieval: search if [Retrieval] has a larger share than this; the paper's value for short answers",
        ge=0,
        le=1,
    )
    fidelity: Literal["paper", "official"] = Field(
        default="paper",
        description="paper: the share of [Retrieval] is computed from probabilities; official: from log-probabilities, as in the script,"
        " where a more likely token gets a smaller share",
    )
    relevance_weight: float = Field(default=1.0, description="weight of [Relevant] in an answer's score; the paper's value")
    support_weight: float = Field(
        default=1.0, description="weight of [Fully supported] plus half of [Partially supported]; the paper's value"
    )
    utility_weight: float = Field(
        default=0.5, description="weight of the mean of [Utility:1] to [Utility:5], on a scale from -1 to 1; the paper's value"
    )
    sequence_score: bool = Field(
        default=True, description="add the answer's mean probability per token (Sec. 3.3); the script's --use_seqscore"
    )
    aggregation: Literal["best", "sum"] = Field(
        default="best",
        description="best: the answer with the best score; sum: the best sum over equal answers, as in the script for closed tasks",
    )
    instruction: str = Field(default="", description="task instruction before the question; the script has none for open questions")


def llm_needs(options: Options) -> frozenset[Need]:
    """The features that an endpoint must support."""
    return frozenset[Need]({"token_ids", "control_tokens", "logprobs", "token_scores"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """The model's reply to one passage, with the scores of its relevance, support and utility."""

    reply: Generation
    relevance: float
    support: float
    utility: float

    @property
    def probability(self) -> float:
        """The geometric mean of the token probabilities of the reply, including its reflection tokens."""
        return math.exp(sum(self.reply.logprobs) / len(self.reply.logprobs)) if self.reply.logprobs else 0.0

    def score(self, options: Options) -> float:
        """The score f(y, d, Critique) (Sec. 3.3)."""
        critique = options.relevance_weight * self.relevance + options.support_weight * self.support + options.utility_weight * self.utility
        return critique + (self.probability if options.sequence_score else 0.0)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Search if the model asks for it; then answer once per passage and select, or answer without passages."""
    prompt = session.context([Segment(render_prompt("self_rag", question=question.text, instruction=options.instruction), "prompt")])
    passages = await session.search(question.text) if await _retrieves(prompt, question.text, session, options) else []
    if not passages:
        reply = await prompt.extend([_control("no_retrieval")]).generate(max_new_tokens=session.max_new_tokens)
        _record(reply, question.text, session)
        return session.prediction(reply.text or UNKNOWN)
    candidates = await asyncio.gather(*(_candidate(prompt, passage, session) for passage in passages))
    for candidate in candidates:
        parts = {"relevance": candidate.relevance, "support": candidate.support, "utility": candidate.utility}
        _record(candidate.reply, question.text, session, probabilities=parts | {"score": candidate.score(options)})
    return session.prediction(_select(candidates, options) or UNKNOWN)


async def _retrieves(prompt: Context, question: str, session: Session, options: Options) -> bool:
    """Whether [Retrieval] is likely enough as the first token, compared with [No Retrieval]."""
    if options.mode != "adaptive_retrieval":
        return options.mode == "always_retrieve"
    logprobs = await _logprobs(prompt, ("retrieval", "no_retrieval"))
    share = logprobs[0] / sum(logprobs) if options.fidelity == "official" else softmax(logprobs)[0]
    session.record("needs_retrieval", question, depth=0, probabilities={_TOKENS["retrieval"]: share})
    return share > options.threshold


async def _candidate(prompt: Context, passage: Passage, session: Session) -> Candidate:
    """The answer to one passage, with its scores. A kind of reflection token that the model did not write scores 0."""
    evidence = Segment(f"{passage.title}\n{passage.text}", "evidence")
    context = prompt.extend([_control("retrieval"), _control("evidence_start"), evidence, _control("evidence_end")])
    relevance, reply = await asyncio.gather(_worth(context, _RELEVANCE), context.generate(max_new_tokens=session.max_new_tokens))
    support, utility = await asyncio.gather(*(_worth_where_written(context, reply, kind, session) for kind in (_SUPPORT, _UTILITY)))
    return Candidate(reply, relevance, support, utility)


async def _worth_where_written(context: Context, reply: Generation, kind: dict[str, float], session: Session) -> float:
    """The score of a kind of token at the position where the model first wrote one of them."""
    token_ids = {control_token_id(_TOKENS[role], session.llm.tokenizer) for role in kind}
    place = next((i for i, token_id in enumerate(reply.token_ids) if token_id in token_ids), None)
    if place is None:
        return 0.0
    return await _worth(context.extend([Segment("", "answer", token_ids=tuple(reply.token_ids[:place]))]), kind)


async def _worth(context: Context, kind: dict[str, float]) -> float:
    """The expected weight of a kind of token at the next position, over their probabilities, normalized within the kind."""
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


def _record(reply: Generation, question: str, session: Session, **values: Any) -> None:
    session.record("answer", question, depth=0, text=reply.text, token_ids=reply.token_ids, logprobs=reply.logprobs, **values)
    if (fault := reply_fault(reply)) is not None:
        record_fault(session, question, fault[0], f"answer: {fault[1]}", depth=0)


def plan(options: Options, limits: Limits) -> list[Calls]:
    """Two scores decide whether to search; then one answer, or one for each passage, with a score of every reflection token."""
    passages = 0 if options.mode == "no_retrieval" else limits.passages
    asked = 2 if options.mode == "adaptive_retrieval" else 0
    judged = len(_RELEVANCE) + len(_SUPPORT) + len(_UTILITY)
    return [
        Calls("needs_retrieval", (asked, asked), prompt="self_rag", continues=True),
        Calls("answer", (1, max(passages, 1)), limits.answer, min(passages, 1), prompt="self_rag", continues=True),
        Calls("score", (0, judged * passages), passages=1, replies=limits.answer, prompt="self_rag", continues=True),
    ]


DECODER = Decoder(decode, Options, needs_retriever=True, control_tokens=SELF_RAG, llm_needs=llm_needs, plan=plan)
