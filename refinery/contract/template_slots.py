"""Render a chat template around slots, so that its own special tokens are ids and what is filled into the slots never is."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from refinery.contract.segments import Segment
from refinery.contract.tokenizer import Tokenizer

# Llama 3.2's template and others write the current date into the prompt, so prompts would change from day to day. This is the date in
# Llama 3.1's template.
_TODAY = datetime(2024, 7, 26)
_DAY = re.compile(r"""strftime_now\(\s*(["'])(?P<format>.*?)\1\s*\)""")

Piece = Segment | str | int  # a special token, plain text, or the number of the slot here


def slot(number: int) -> str:
    """A word that no template contains or would trim."""
    return f"REFINERY{number}SLOT"


def rendered(messages: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, **options: Any) -> str:
    """The text that the template makes of messages, on the same day every day. Raises ValueError if it rejects them."""
    from jinja2 import TemplateError

    try:
        template = _on_one_day(tokenizer.get_chat_template())
        return tokenizer.apply_chat_template(messages, tokenize=False, chat_template=template, **options)
    except (
        TemplateError,
        TypeError,
        ValueError,
    ) as error:  # the template rejects messages in plain text, or there are several without a default
        raise ValueError(str(error).strip().split("\n")[0]) from None


def _on_one_day(template: str) -> str:
    return _DAY.sub(lambda call: json.dumps(_TODAY.strftime(call["format"])), template)


def pieces_of(text: str, slots: int, tokenizer: Tokenizer) -> list[Piece]:
    """The rendered template, split at its added tokens, as its tokenizer finds them, and at its slots."""
    encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=False, return_offsets_mapping=True)
    pieces: list[Piece] = []
    done = 0
    for token_id, (start, stop) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        if token_id in tokenizer.added_tokens_decoder and stop > start >= done:
            pieces += _cut_at_slots(text[done:start], slots)
            pieces.append(Segment(tokenizer.convert_ids_to_tokens(token_id), "template", token_ids=(token_id,)))
            done = stop
    return [*pieces, *_cut_at_slots(text[done:], slots)]


def _cut_at_slots(text: str, slots: int) -> list[Piece]:
    for number in range(slots):
        before, found, after = text.partition(slot(number))
        if found:
            return [*([before] if before else []), number, *_cut_at_slots(after, slots)]
    return [text] if text else []


def begun_by_template(segments: list[Segment]) -> list[Segment]:
    """The segments as a conversation: its first one is of kind `template`, so that no BOS is added."""
    return segments if segments[0].kind == "template" else [Segment("", "template", token_ids=()), *segments]


def filled(frame: Sequence[Piece], contents: Sequence[str | Sequence[Segment]]) -> list[Segment]:
    """The template's pieces with the messages filled in. Adjacent texts are encoded as one."""
    segments: list[Segment] = []
    text = ""
    for piece in frame:
        content = contents[piece] if isinstance(piece, int) else piece
        if isinstance(content, str):
            text += content.strip() if isinstance(piece, int) else content
            continue
        segments += [Segment(text, "prompt")] if text else []
        segments += [content] if isinstance(content, Segment) else content
        text = ""
    return [*segments, Segment(text, "prompt")] if text else segments
