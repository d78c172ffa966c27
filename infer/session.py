"""What a decoder works with for one question: the model, the search, and the notes it takes."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infer.fitting import count_shortened, fit_passages, fit_prompt, fit_text, valid_text
from infer.outcomes import SearchHealth
from refinery.contract.chat_template import frame_tokens
from refinery.contract.records import Passage, Question, Trajectory
from refinery.contract.segments import Segment
from refinery.contract.trace import Cost, FilledPrompt, Prediction, ScoredPassage, TraceStep
from refinery.errors import RetrievalError
from refinery.llms.base import LLM, Context, Generation, Usage
from refinery.prompts.render import Prompt
from refinery.retrievers.base import Hit, Retriever

AnswerStyle = Literal["paper", "short"]
# Of a model's context, a question may take one in so many; what most prompts say besides question and passages is no longer than this.
_QUESTION_SHARE = 4
_PROMPT_TOKENS = 128


@dataclass(slots=True)
class Session:
    """One question's models, retriever and notebook; every decoder step goes through it, so costs and traces are complete.

    `sub_models` play the roles they are named by, `adapters` of `llm` others, and `llm` itself what is left.
    """

    question: Question
    llm: LLM
    retriever: Retriever | None
    passages_per_query: int
    adapters: frozenset[str] = frozenset()
    sub_models: Mapping[str, LLM] = field(default_factory=dict)
    max_new_tokens: int = 32
    keep_prompts: bool = False
    answer_style: AnswerStyle = "paper"
    usage: Usage = field(default_factory=Usage)
    retrievals: int = 0
    trace: list[TraceStep] = field(default_factory=list)
    searches: SearchHealth = field(default_factory=SearchHealth)  # of all questions together
    failed: str | None = None

    def context(self, prompt: str | Sequence[Segment]) -> Context:
        """A fresh context whose cost is this question's."""
        return self.llm.context(prompt, usage=self.usage)

    def context_for(self, role: str, prompt: str) -> Context:
        """A fresh context of the model that plays a role."""
        return self.sub_models.get(role, self.llm).context(prompt, usage=self.usage)

    def fit_prompt(self, role: str, prompt: str, *, to_write: int) -> str:
        """The prompt for `context_for`, with a note where its passages had to be shortened: one search finds no more than the model has
        room for, but worked examples and several searches together may be."""
        llm = self.sub_models.get(role, self.llm)
        prompt = self.styled(prompt)
        limit = llm.context_limit
        if limit is None or not isinstance(prompt, Prompt):
            return prompt
        fitted = fit_prompt(prompt, limit - to_write - frame_tokens(llm.token_counter), llm.token_counter)
        if fitted is not prompt:
            self.record("shortened", self.question.text, depth=0, text=f"the passages in the prompt {prompt.name}")
        return fitted

    def styled(self, prompt: str) -> str:
        """The prompt as the recipe's `answer_style` has it."""
        if self.answer_style == "paper" or not isinstance(prompt, Prompt):
            return prompt
        return prompt.rendered_with(answer_style=self.answer_style)

    def adapter(self, role: str) -> str | None:
        """The adapter trained for a role, or None where a model of its own, or the bare model, plays it."""
        return role if role in self.adapters and role not in self.sub_models else None

    def readable(self) -> Question:
        """The question as it is decoded: shortened, with a note, where the model's context is too short for it."""
        text = self.question.text
        if (limit := self.llm.context_limit) is not None:
            text = fit_text(text, limit // _QUESTION_SHARE, self.llm.token_counter)
        if text != self.question.text:
            self.record("shortened", text, depth=0, text=f"the question, of {len(self.question.text):,} characters")
        return self.question.model_copy(update={"text": text})

    async def search(self, query: str, *, depth: int = 0, token_budget: int | None = None, whole: bool = False) -> list[Passage]:
        """Passages for a query, best first; none, and a `fault` in the trace, where the search could not be made: the question then counts
        as unfinished.

        They are `fitted`, and how many were shortened stands in the trace; or `whole`, for a filter that shows the model few of them.
        """
        assert self.retriever is not None
        self.retrievals += 1
        hits: list[Hit] = []
        try:
            hits = await self.retriever.search(query, k=self.passages_per_query, question=self.question)
            self.searches.succeeded()
        except RetrievalError as error:
            self.searches.failed(error)
            self.failed = f"search_failed: {error}"
            self.record("fault", query, depth=depth, text=self.failed)
        found = [hit.passage for hit in hits]
        passages = [p.model_copy(update={"title": valid_text(p.title), "text": valid_text(p.text)}) for p in found]
        passages = passages if whole else self.fitted(passages, token_budget)
        hits = [dataclasses.replace(hit, passage=passage) for hit, passage in zip(hits, passages, strict=True)]
        self.record("retrieve", query, depth=depth, passages=hits, shortened=count_shortened(passages, found) or None)
        return passages

    def fitted(self, passages: list[Passage], token_budget: int | None = None) -> list[Passage]:
        """The passages shortened until together they take `token_budget` tokens, by default what a prompt has for them."""
        if (limit := self.llm.context_limit) is None:
            return passages
        if token_budget is None:
            token_budget = limit - limit // _QUESTION_SHARE - self.max_new_tokens - _PROMPT_TOKENS - frame_tokens(self.llm.token_counter)
        return fit_passages(passages, max(token_budget, 0), self.llm.token_counter)

    @property
    def context_left(self) -> int | None:
        """The longest context that leaves room for an answer; None where the model names no limit."""
        return None if self.llm.context_limit is None else self.llm.context_limit - self.max_new_tokens

    def record(
        self, name: str, question: str, *, depth: int, passages: Sequence[Hit] | None = None, prompt: str | None = None, **values: Any
    ) -> None:
        """Write one step into the trace, with the prompt that the model read where prompts are kept."""
        if self.keep_prompts and isinstance(prompt, Prompt):
            values["prompt"] = FilledPrompt(name=prompt.name, values=copy.deepcopy(prompt.values))  # decoders go on filling their lists
        found = (
            [ScoredPassage(**h.passage.model_dump(), retrieval_score=h.retrieval_score) for h in passages] if passages is not None else None
        )
        self.trace.append(TraceStep(name=name, depth=depth, question=question, passages=found, **values))

    def ended_by(self, fault: str) -> Prediction:
        """Close the question without an answer, for the reason that `fault` opens with."""
        self.failed = fault
        self.record("fault", self.question.text, depth=0, text=fault)
        return self.prediction("")

    def record_reply(self, name: str, question: str, reply: Generation, cut: str | None, *, depth: int, prompt: str | None = None) -> None:
        """Write what a model replied into the trace, with the reasoning before it and what was cut off after it."""
        told = {"text": reply.text, "reasoning": reply.reasoning or None, "cut": cut}
        ids = {"token_ids": reply.token_ids, "logprobs": reply.logprobs} if reply.token_ids else {}
        self.record(name, question, depth=depth, prompt=prompt, **told, **ids)

    def prediction(self, answer: str, *, paths: Sequence[Trajectory] = (), selected: dict[str, str] | None = None) -> Prediction:
        """Close the question with its answer."""
        usage = self.usage
        return Prediction(
            question_id=self.question.id,
            question=self.question.text,
            answer=answer,
            trace=self.trace,
            cost=Cost(
                calls=usage.calls,
                retrievals=self.retrievals,
                prefill_tokens=usage.prefill_tokens,
                decode_tokens=usage.decode_tokens,
            ),
            paths=list(paths),
            selected=selected or {},
            failed=self.failed,
        )
