"""A checkpoint's own chat template around what it is asked, the same in training and inference, token by token.

A template's own words may be special tokens; what a message holds never is: the template is rendered around slots, its special tokens
become ids, and messages are filled in afterwards as plain text. A tokenizer without a template leaves a prompt as it is, for a base model.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from refinery.contract.segments import Segment, encode_segment
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError
from refinery.runtime.fingerprint import text_fingerprint

Role = Literal["system", "user", "assistant"]
AUTO, NONE = "auto", "none"
# Llama 3.2's template and others write the current day into the prompt, so that no two days' prompts would be equal. This is the day that
# Llama 3.1's template names.
_TODAY = datetime(2024, 7, 26)
_DAY = re.compile(r"""strftime_now\(\s*(["'])(?P<format>.*?)\1\s*\)""")

_Piece = Segment | str | int  # one of the template's tokens, its plain text, or the number of the message that stands here
_frames: "WeakKeyDictionary[Any, dict[tuple[str, tuple[Role, ...]], tuple[_Piece, ...]]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: outside text, or segments where it holds control tokens."""

    role: Role
    content: str | Sequence[Segment]


def has_template(tokenizer: Tokenizer) -> bool:
    """Whether prompts for this tokenizer's model go through a chat template."""
    return bool(tokenizer.chat_template)


def use_template(tokenizer: Tokenizer, choice: str) -> None:
    """Give the tokenizer the template that a recipe chooses: its own ("auto"), none, or that of a file; it is saved with what is trained.

    Raises CheckpointError when the file cannot be read or no prompt can be written with it.
    """
    if choice == NONE:
        tokenizer.chat_template = None
    elif choice != AUTO:
        try:
            tokenizer.chat_template = Path(choice).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"chat_template: {choice} cannot be read ({error}). Name a Jinja file, or set chat_template: auto or none."
            ) from None
    if has_template(tokenizer):
        _frame(("user",), tokenizer)
        _frame(("user", "assistant"), tokenizer)


def template_fingerprint(tokenizer: Tokenizer) -> str | None:
    """What a trained checkpoint records of its template; None without one."""
    return text_fingerprint([tokenizer.get_chat_template()]) if has_template(tokenizer) else None


def user_turn(prompt: str, tokenizer: Tokenizer) -> list[Segment]:
    """A prompt as a user's turn that the model replies to, or as plain text for a model without a template."""
    return chat_segments([Message("user", prompt)], tokenizer) if has_template(tokenizer) else [Segment(prompt, "prompt")]


def reply_text(text: str, tokenizer: Tokenizer) -> str:
    """What a model writes after `user_turn`: under a template it begins without the space or line break that sets it off."""
    return text.lstrip() if has_template(tokenizer) else text


def chat_segments(messages: Sequence[Message], tokenizer: Tokenizer) -> list[Segment]:
    """A conversation, up to where the assistant writes. The first segment is of kind `template`: the template writes BOS, or none.

    A system message joins the user's first turn where the template takes none (Gemma, Mistral).
    Raises CheckpointError when the template cannot be rendered.
    """
    if messages[0].role == "system" and not _takes_system(tokenizer):
        messages = _without_system(messages)
    segments = _filled(_frame(tuple(message.role for message in messages), tokenizer), [message.content for message in messages])
    return segments if segments[0].kind == "template" else [Segment("", "template", token_ids=()), *segments]


def next_turn(text: str, tokenizer: Tokenizer, *, after: Sequence[int]) -> list[Segment]:
    """What follows a reply, so that the model is asked `text` next; `after` are the tokens so far, which may hold the reply's end."""
    if not has_template(tokenizer):
        return [Segment(f"\n{text}\n", "prompt")]
    frame = _frame(("user", "assistant", "user"), tokenizer)
    following = frame[frame.index(1) + 1 :]
    end = following[0].token_ids if isinstance(following[0], Segment) else None
    return _filled(following[1:] if end == tuple(after[-1:]) else following, ["", "", text])


def reply_end(tokenizer: Tokenizer) -> str:
    """The special token that ends the assistant's turn: `<end_of_turn>` of Gemma, whose end of sequence is another one."""
    if not has_template(tokenizer):
        return tokenizer.eos_token
    frame = _frame(("user", "assistant"), tokenizer)
    after = frame[frame.index(1) + 1 :]
    return next((piece.text for piece in after if isinstance(piece, Segment)), tokenizer.eos_token)


def end_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that a reply ends at."""
    ends = (tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(reply_end(tokenizer)))
    return frozenset(end for end in ends if end is not None)


def frame_tokens(tokenizer: Tokenizer) -> int:
    """How many tokens stand around a prompt: the template's, or BOS."""
    if has_template(tokenizer):
        return sum(len(encode_segment(segment, tokenizer)) for segment in user_turn("", tokenizer))
    return int(tokenizer.bos_token_id is not None)


def _filled(frame: Sequence[_Piece], contents: Sequence[str | Sequence[Segment]]) -> list[Segment]:
    """The pieces of a template with each message in its place; text that meets text is encoded as one."""
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


def _takes_system(tokenizer: Tokenizer) -> bool:
    try:
        return 0 in _frame(("system", "user"), tokenizer)
    except CheckpointError:
        return False


def _without_system(messages: Sequence[Message]) -> list[Message]:
    system, user, *rest = messages
    texts = [message.content.strip() for message in (system, user) if isinstance(message.content, str)]  # only a reply holds segments
    return [Message("user", "\n\n".join(texts)), *rest]


def _frame(roles: tuple[Role, ...], tokenizer: Tokenizer) -> tuple[_Piece, ...]:
    """What the template writes around messages of these roles, and where these stand in it."""
    known = _frames.setdefault(tokenizer, {})
    key = (tokenizer.get_chat_template(), roles)
    if key not in known:
        pieces = tuple(_pieces(_rendered(roles, tokenizer), len(roles), tokenizer))
        if lost := next((role for number, role in enumerate(roles) if role != "system" and number not in pieces), None):
            raise _unusable(roles, f"the {lost}'s message is not in what it renders", tokenizer)
        known[key] = pieces
    return known[key]


def _rendered(roles: tuple[Role, ...], tokenizer: Tokenizer) -> str:
    """The template around slots, without the thinking that some templates switch on (Qwen3)."""
    from jinja2 import TemplateError

    try:
        return tokenizer.apply_chat_template(
            [{"role": role, "content": _slot(number)} for number, role in enumerate(roles)],
            tokenize=False,
            add_generation_prompt=roles[-1] == "user",
            enable_thinking=False,
            chat_template=_on_one_day(tokenizer.get_chat_template()),
        )
    except (TemplateError, TypeError, ValueError) as error:  # one that wants other messages than texts, or several without a default
        raise _unusable(roles, str(error).strip().split("\n")[0], tokenizer) from None


def _unusable(roles: tuple[Role, ...], reason: str, tokenizer: Tokenizer) -> CheckpointError:
    return CheckpointError(
        f"{tokenizer.name_or_path}: its chat template does not take a conversation of {', '.join(roles)} ({reason}). "
        "Name another by chat_template: FILE, or set chat_template: none."
    )


def _on_one_day(template: str) -> str:
    return _DAY.sub(lambda call: json.dumps(_TODAY.strftime(call["format"])), template)


def _pieces(rendered: str, slots: int, tokenizer: Tokenizer) -> list[_Piece]:
    """The rendered template cut at its added tokens, as its tokenizer finds them, and at its slots."""
    encoded = tokenizer(rendered, add_special_tokens=False, split_special_tokens=False, return_offsets_mapping=True)
    pieces: list[_Piece] = []
    done = 0
    for token_id, (start, stop) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        if token_id in tokenizer.added_tokens_decoder and stop > start >= done:
            pieces += _cut_at_slots(rendered[done:start], slots)
            pieces.append(Segment(tokenizer.convert_ids_to_tokens(token_id), "template", token_ids=(token_id,)))
            done = stop
    return [*pieces, *_cut_at_slots(rendered[done:], slots)]


def _cut_at_slots(text: str, slots: int) -> list[_Piece]:
    for number in range(slots):
        before, found, after = text.partition(_slot(number))
        if found:
            return [*([before] if before else []), number, *_cut_at_slots(after, slots)]
    return [text] if text else []


def _slot(number: int) -> str:
    """A word that no template has, and that none would trim."""
    return f"REFINERY{number}SLOT"
