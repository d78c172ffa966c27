"""A plain decoder for RA-ISF's Algorithm 1: one call after another, every prompt encoded from its beginning, nothing cached."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from refinery.contract.records import Passage
from refinery.contract.segments import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.prompts.render import render_prompt
from refinery.tasks.relevance import IRRELEVANT, RELEVANT, relevance_prompt
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


class PlainSolver:
    """Algorithm 1 with both thresholds at 0.5; `decompose` replaces M_decom."""

    def __init__(
        self,
        model: "LlamaForCausalLM",
        tokenizer: Tokenizer,
        search: Callable[[str], Sequence[Passage]],
        decompose: Callable[[str], Sequence[str]],
        *,
        max_depth: int,
        max_new_tokens: int,
    ) -> None:
        self.model, self.tokenizer, self.search, self.decompose = model, tokenizer, search, decompose
        self.max_depth, self.max_new_tokens = max_depth, max_new_tokens

    @torch.inference_mode()
    def solve(self, question: str, depth: int = 0) -> str:
        """The answer to a question."""
        if self._first_is_likelier(knowledge_prompt(question), KNOW, UNKNOW):
            return self._answer(render_prompt("answer_direct", question=question))
        passages = self.search(question)
        relevant = [p for p in passages if self._first_is_likelier(relevance_prompt(question, p), RELEVANT, IRRELEVANT)]
        if relevant:
            return self._answer(render_prompt("answer_with_passages", question=question, passages=relevant))
        if depth == self.max_depth:
            return "Unknow"
        sub_answers = [(sub_question, self.solve(sub_question, depth + 1)) for sub_question in self.decompose(question)]
        return self._answer(render_prompt("answer_from_sub_answers", question=question, sub_answers=sub_answers))

    def _ids(self, prompt: str) -> torch.Tensor:
        return torch.tensor([[self.tokenizer.bos_token_id, *encode_text(prompt, self.tokenizer)]], device=self.model.device)

    def _first_is_likelier(self, prompt: str, first: str, second: str) -> bool:
        logits = self.model(self._ids(prompt), logits_to_keep=1).logits[0, -1]
        one, other = (encode_text(label, self.tokenizer)[0] for label in (first, second))
        return bool(logits[one] >= logits[other])

    def _answer(self, prompt: str) -> str:
        ids = self._ids(prompt)
        end = self.tokenizer.eos_token_id
        mask = torch.ones_like(ids)
        # transformers' type of `self` has attributes that no model declares.
        output = self.model.generate(  # pyright: ignore[reportAttributeAccessIssue]
            ids, attention_mask=mask, max_new_tokens=self.max_new_tokens, do_sample=False, eos_token_id=end, pad_token_id=end
        )
        return self.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True).strip()
