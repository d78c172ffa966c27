"""A plain decoder for RQ-RAG's tree, like the authors': one path at a time, whose whole prefix is encoded again for every call of
`generate`, and a second pass over every finished path for its scores.

With `format: official` it reads queries and answers as inference.py does: the last match of a regular expression in the whole text.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from refinery.contract.formats import END, FormatName, action_segment, evidence_segments, prompt_segments
from refinery.contract.records import Passage, Question
from refinery.contract.segments import control_token_id, encode, encode_segment
from refinery.contract.tokenizer import Tokenizer
from refinery.prompts.render import render_prompt

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


_QUERY = re.compile(r"\[(?:S_Rewritten_Query|S_Decomposed_Query|S_Disambiguated_Query)\](.*?)\[EOS\]", re.DOTALL)
_ANSWER = re.compile(r"\[A_Response\](.*?)\[EOS\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReferencePath:
    """A finished path: its actions, and for each step the tokens written and their log-probabilities from the second pass."""

    actions: tuple[str, ...]
    answer: str
    token_ids: list[list[int]]
    logprobs: list[list[float]]
    input_ids: list[int]


@torch.inference_mode()
def decode_plainly(
    question: Question,
    model: "LlamaForCausalLM",
    tokenizer: Tokenizer,
    search: Callable[[str], Sequence[Passage]],
    *,
    max_depth: int,
    actions: Sequence[str] = ("rewrite", "decompose", "disambiguate"),
    max_query_tokens: int,
    max_new_tokens: int,
    system_prompt: str = "rq_rag_short_answer",
    format: FormatName = "consistent",
) -> list[ReferencePath]:
    """Every path of the tree, in the order in which the authors' queue finishes them (RQ-RAG Sec. 2.3)."""
    end = control_token_id(END.text, tokenizer)
    start = encode(prompt_segments(question.text, render_prompt(system_prompt), tokenizer, format=format), tokenizer).input_ids
    waiting: deque[tuple[tuple[str, ...], list[int], list[tuple[int, int]]]] = deque([((), start, [])])
    finished = []
    while waiting:
        taken, prefix, spans = waiting.popleft()
        for action in ("answer", *(actions if len(taken) < max_depth else ())):
            opened = [*prefix, *encode_segment(action_segment(action), tokenizer)]
            written = _generate(model, opened, max_query_tokens if action != "answer" else max_new_tokens, [tokenizer.eos_token_id, end])
            text = tokenizer.decode(written, skip_special_tokens=True).strip()
            ids, here = [*opened, *written], (len(prefix), len(opened) + len(written))
            if action == "answer":
                answer = _last(_ANSWER, ids, tokenizer, "dummy results, unable to detect valid answer") if format == "official" else text
                finished.append(((*taken, action), answer, ids, [*spans, here]))
                continue
            query = _last(_QUERY, ids, tokenizer, "dummy") if format == "official" else text or question.text
            closing = [] if format == "official" or written[-1] in (tokenizer.eos_token_id, end) else [END]
            evidence = [*closing, *evidence_segments(search(query), format=format)]
            ids += [token for segment in evidence for token in encode_segment(segment, tokenizer)]
            waiting.append(((*taken, action), ids, [*spans, here]))
    return [_scored(model, *path) for path in finished]


def _last(pattern: re.Pattern[str], ids: Sequence[int], tokenizer: Tokenizer, otherwise: str) -> str:
    found = pattern.findall(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
    return found[-1].strip() if found else otherwise


def _generate(model: "LlamaForCausalLM", ids: list[int], max_new_tokens: int, stop_ids: list[int]) -> list[int]:
    prompt = torch.tensor([ids], device=model.device)
    # transformers' type of `self` has attributes that no model declares.
    output = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=stop_ids,
        pad_token_id=stop_ids[0],
    )
    return output[0, len(ids) :].tolist()


def _scored(
    model: "LlamaForCausalLM", actions: tuple[str, ...], answer: str, ids: list[int], spans: list[tuple[int, int]]
) -> ReferencePath:
    """The second pass: log-probabilities (tokens, vocab) of the whole path, reduced to the spans that the model wrote."""
    tokens = torch.tensor([ids], device=model.device)
    logprobs = torch.log_softmax(model(tokens).logits[0].float(), dim=-1)
    taken = logprobs[:-1].gather(-1, tokens[0, 1:, None])[:, 0].tolist()
    return ReferencePath(
        actions, answer, [ids[start:stop] for start, stop in spans], [taken[start - 1 : stop - 1] for start, stop in spans], ids
    )
