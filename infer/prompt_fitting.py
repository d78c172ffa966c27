"""Prepare text from outside for a model: make it valid Unicode, and shorten it to fit the model's context."""

from collections.abc import Callable, Sequence
from typing import Any

from refinery.contract.records import Passage
from refinery.contract.segments import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.base import LLM
from refinery.prompts.render import Prompt

# No tokenizer has longer tokens, so text beyond this many characters per token can be cut without encoding it.
_CHARACTERS_PER_TOKEN = 64
_TITLE_TOKENS = 32
_UNKNOWN_CONTEXT_CHARACTERS = 36_000
# "Title:", "Text:" and two line ends take tokens too; eight is a safe upper bound.
_TOKENS_BESIDE = 8


def valid_text(text: str) -> str:
    """The text with `?` in place of lone surrogates: bytes that were not valid UTF-8, which neither tokenizers nor JSON accept."""
    return text.encode("utf-8", "replace").decode("utf-8")


def fit_text(text: str, token_budget: int, tokenizer: Tokenizer) -> str:
    """The text, or the part of its beginning that takes `token_budget` tokens."""
    beginning = text[: token_budget * _CHARACTERS_PER_TOKEN]
    token_ids = encode_text(beginning, tokenizer)
    if len(token_ids) <= token_budget:
        return beginning
    return valid_text(tokenizer.decode(token_ids[:token_budget], skip_special_tokens=False)).rstrip("\N{REPLACEMENT CHARACTER}")


def fit_part(text: str, llm: LLM, part: int) -> str:
    """The beginning of a text that takes at most 1/`part` of the model's context."""
    text, limit = valid_text(text), llm.context_limit
    return text[: _UNKNOWN_CONTEXT_CHARACTERS // part] if limit is None else fit_text(text, limit // part, llm.token_counter)


def fit_passages(passages: Sequence[Passage], token_budget: int, tokenizer: Tokenizer) -> list[Passage]:
    """The passages, with the longest ones shortened until all together take `token_budget` tokens."""
    titles = [fit_text(passage.title, _TITLE_TOKENS, tokenizer) for passage in passages]
    texts = [passage.text[: token_budget * _CHARACTERS_PER_TOKEN] for passage in passages]
    lengths = [len(encode_text(text, tokenizer)) for text in texts]
    left = token_budget - sum(len(encode_text(title, tokenizer)) + _TOKENS_BESIDE for title in titles)
    cap = _cap(lengths, left)
    return [
        passage.model_copy(update={"title": title, "text": fit_text(text, cap, tokenizer) if length > cap else text})
        for passage, title, text, length in zip(passages, titles, texts, lengths, strict=True)
    ]


def fit_prompt(prompt: Prompt, token_budget: int, tokenizer: Tokenizer) -> Prompt:
    """The prompt with its passages shortened, the longest first, until it takes `token_budget` tokens or no passage has text left."""
    shown, factor = passages_in(prompt), 1
    while (excess := len(encode_text(prompt, tokenizer)) - token_budget) > 0 and any(passage.text for passage in shown):
        taken = sum(len(encode_text(text, tokenizer)) for passage in shown for text in (passage.title, passage.text))
        shown = fit_passages(shown, taken + _TOKENS_BESIDE * len(shown) - factor * excess, tokenizer)
        factor *= 2  # a text may take more tokens when cut or inside a prompt, so each round removes more than the measured excess
        in_turn = iter(shown)
        prompt = prompt.rendered_with(**_changed(prompt.values, lambda _, in_turn=in_turn: next(in_turn)))
    return prompt


def passages_in(prompt: str | None) -> list[Passage]:
    """The passages among the values of a prompt, in order; none in a text that was not rendered from a file."""
    shown: list[Passage] = []
    if isinstance(prompt, Prompt):
        _changed(prompt.values, lambda passage: shown.append(passage) or passage)
    return shown


def _changed(values: Any, change: Callable[[Passage], Passage]) -> Any:
    """The values of a prompt with each passage in them changed, in order."""
    if isinstance(values, Passage):
        return change(values)
    if isinstance(values, dict):
        return {name: _changed(value, change) for name, value in values.items()}
    return [_changed(value, change) for value in values] if isinstance(values, list | tuple) else values


def count_shortened(passages: Sequence[Passage], whole: Sequence[Passage]) -> int:
    """The number of passages that were shortened."""
    return sum(len(read.text) < len(before.text) for read, before in zip(passages, whole, strict=True))


def _cap(lengths: Sequence[int], token_budget: int) -> int:
    """The maximum length per text so that all of them fit; space that short texts do not use is available to the long ones."""
    left, ordered = max(token_budget, 0), sorted(lengths)
    for i, length in enumerate(ordered):
        share = left // (len(ordered) - i)
        if length > share:
            return share
        left -= length
    return max(lengths, default=0)
