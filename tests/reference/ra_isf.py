"""RA-ISF's Algorithm 1 as the paper prints it, line by line: one call after another, and nothing is remembered.

It was written from the paper's text and shares nothing with infer/decoders/ra_isf.py. `LlamaModels` plays all its models with one Llama.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from refinery.contract.records import Passage
from refinery.contract.segments import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.prompts.render import render_prompt
from refinery.tasks.relevance import IRRELEVANT, RELEVANT, relevance_prompt
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


class Models(Protocol):
    """M_know, M_rel, M_decom, M with its three prompts (App. D), and the retriever R over the corpus C."""

    def knows(self, question: str) -> bool: ...
    def retrieve(self, question: str) -> Sequence[Passage]: ...
    def is_relevant(self, question: str, passage: Passage) -> bool: ...
    def decompose(self, question: str) -> Sequence[str]: ...
    def answer(self, question: str) -> str: ...
    def answer_from_passages(self, question: str, passages: Sequence[Passage]) -> str: ...
    def answer_from_sub_answers(self, question: str, sub_answers: Sequence[tuple[str, str]]) -> str: ...


def problem_solving(question: str, iteration: int, models: Models, *, max_depth: int, answer_from: str = "relevant") -> str:
    """The function of Algorithm 1. `answer_from`: `all` reads P, as line 14 prints it, and `relevant` P_rel, as in Eq. 3."""
    if iteration > max_depth:  # line 2; D_th
        return "Unknow"
    if models.knows(question):  # line 5
        return models.answer(question)
    passages = models.retrieve(question)  # line 8
    relevant: list[Passage] = []
    for passage in passages:  # line 10
        if models.is_relevant(question, passage):
            relevant.append(passage)
    if len(relevant) > 0:  # line 13
        return models.answer_from_passages(question, passages if answer_from == "all" else relevant)
    sub_answers: list[tuple[str, str]] = []
    for sub_question in models.decompose(question):  # lines 16 and 17
        answer = problem_solving(sub_question, iteration + 1, models, max_depth=max_depth, answer_from=answer_from)
        sub_answers.append((sub_question, answer))
    return models.answer_from_sub_answers(question, sub_answers)  # line 20


class LlamaModels:
    """All models played by one Llama, which encodes every prompt from its beginning. `decompose` replaces M_decom."""

    def __init__(
        self,
        model: "LlamaForCausalLM",
        tokenizer: Tokenizer,
        search: Callable[[str], Sequence[Passage]],
        decompose: Callable[[str], Sequence[str]],
        *,
        max_new_tokens: int,
    ) -> None:
        self.model, self.tokenizer, self.max_new_tokens = model, tokenizer, max_new_tokens
        self._search, self._decompose = search, decompose

    def knows(self, question: str) -> bool:
        """Whether the first token of its label is at least as likely as that of the other."""
        return self._first_is_likelier(knowledge_prompt(question), KNOW, UNKNOW)

    def retrieve(self, question: str) -> Sequence[Passage]:
        """R(q, C)."""
        return self._search(question)

    def decompose(self, question: str) -> Sequence[str]:
        """M_decom(q)."""
        return self._decompose(question)

    def is_relevant(self, question: str, passage: Passage) -> bool:
        """As `knows`."""
        return self._first_is_likelier(relevance_prompt(question, passage), RELEVANT, IRRELEVANT)

    def answer(self, question: str) -> str:
        """M(q)."""
        return self._write(render_prompt("answer_direct", question=question))

    def answer_from_passages(self, question: str, passages: Sequence[Passage]) -> str:
        """M(q, P)."""
        return self._write(render_prompt("answer_with_passages", question=question, passages=passages))

    def answer_from_sub_answers(self, question: str, sub_answers: Sequence[tuple[str, str]]) -> str:
        """M(q, Q_sub, A_sub)."""
        return self._write(render_prompt("answer_from_sub_answers", question=question, sub_answers=sub_answers))

    def _ids(self, prompt: str) -> torch.Tensor:
        return torch.tensor([[self.tokenizer.bos_token_id, *encode_text(prompt, self.tokenizer)]], device=self.model.device)

    @torch.inference_mode()
    def _first_is_likelier(self, prompt: str, first: str, second: str) -> bool:
        logits = self.model(self._ids(prompt), logits_to_keep=1).logits[0, -1]
        one, other = (encode_text(label, self.tokenizer)[0] for label in (first, second))
        return bool(logits[one] >= logits[other])

    @torch.inference_mode()
    def _write(self, prompt: str) -> str:
        ids = self._ids(prompt)
        end = self.tokenizer.eos_token_id
        mask = torch.ones_like(ids)
        # transformers' type of `self` has attributes that no model declares.
        output = self.model.generate(  # pyright: ignore[reportAttributeAccessIssue]
            ids, attention_mask=mask, max_new_tokens=self.max_new_tokens, do_sample=False, eos_token_id=end, pad_token_id=end
        )
        return self.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True).strip()
