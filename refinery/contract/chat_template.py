"""Apply a checkpoint's own chat template to prompts, with identical tokens in training and inference.

A template's own text may contain special tokens, but a message never does: the template is rendered around slots, its special tokens
become ids, and messages are filled in afterwards as plain text. Without a template, as for a base model, a prompt is unchanged.

A prompt ends where the template puts the reply when it renders a whole conversation. That may be later than its generation prompt: gpt-oss
adds the channel's name, and GLM closes an empty thought.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from refinery.contract.plain_text import encode_text
from refinery.contract.segments import Segment, encode_segment
from refinery.contract.template_slots import Piece, begun_by_template, filled, pieces_of, rendered, slot
from refinery.contract.thought_marks import opened_thought
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError
from refinery.runtime.files.fingerprint import text_fingerprint

Role = Literal["system", "user", "assistant"]
AUTO, NONE = "auto", "none"

_frames: "WeakKeyDictionary[Any, dict[tuple[str, tuple[Role, ...], bool], tuple[Piece, ...]]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation: outside text, or segments if it contains control tokens."""

    role: Role
    content: str | Sequence[Segment]


def has_template(tokenizer: Tokenizer) -> bool:
    """Whether prompts for this tokenizer's model go through a chat template."""
    return bool(tokenizer.chat_template)


def use_template(tokenizer: Tokenizer, choice: str) -> None:
    """Set the template that a recipe chooses: the tokenizer's own ("auto"), none, or a file's. It is saved with the trained model.

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
    """The fingerprint of the template that a trained checkpoint records, or None without a template."""
    return text_fingerprint([tokenizer.get_chat_template()]) if has_template(tokenizer) else None


def user_turn(prompt: str, tokenizer: Tokenizer) -> list[Segment]:
    """A prompt as a user turn for the model to reply to, or as plain text for a model without a template."""
    return chat_segments([Message("user", prompt)], tokenizer) if has_template(tokenizer) else [Segment(prompt, "prompt")]


def reply_text(text: str, tokenizer: Tokenizer) -> str:
    """The text that a model writes after `user_turn`.

    With a template, it begins and ends with the spaces that the template writes there (Llama 2), and no others. A SentencePiece tokenizer
    adds the first one itself.
    """
    if not has_template(tokenizer):
        return text
    before, after = _spaces_around_reply(tokenizer)
    adds_its_own = tokenizer.convert_ids_to_tokens(encode_text("a", tokenizer)[0]).startswith("▁")
    return f"{'' if adds_its_own else before}{text.lstrip()}{after}"


def _spaces_around_reply(tokenizer: Tokenizer) -> tuple[str, str]:
    """The white space that the template writes before a reply, and between the reply and its end token; "" where there is none."""
    whole, asks = _frame(("user", "assistant"), tokenizer), _frame(("user",), tokenizer)
    reply = whole.index(1)
    before = " " if _ends_in_space(whole[reply - 1]) and not _ends_in_space(asks[-1]) else ""
    match whole[reply + 1 :]:
        case [str(after), Segment(), *_] if after.isspace():
            return before, after
        case _:
            return before, ""


def _ends_in_space(piece: Piece) -> bool:
    return isinstance(piece, str) and piece.endswith(" ")


def chat_segments(messages: Sequence[Message], tokenizer: Tokenizer, *, reasons: bool = False) -> list[Segment]:
    """A conversation, up to where the assistant's reply begins. The first segment is of kind `template`: BOS is left to the template.

    With `reasons`, it ends with the template's generation prompt, after which a model may think first.
    A system message becomes part of the first user turn if the template does not support it (Gemma, Mistral).
    Raises CheckpointError when the template cannot be rendered.
    """
    if messages[0].role == "system" and not _takes_system(tokenizer):
        messages = _without_system(messages)
    frame = _frame(tuple(message.role for message in messages), tokenizer, reasons=reasons)
    return begun_by_template(filled(frame, [message.content for message in messages]))


def next_turn(text: str, tokenizer: Tokenizer, *, after: Sequence[int]) -> list[Segment]:
    """The segments after a reply that ask the model `text` next. `after` holds the tokens so far, which may include the reply's end."""
    if not has_template(tokenizer):
        return [Segment(f"\n{text}\n", "prompt")]
    frame = _frame(("user", "assistant", "user"), tokenizer)
    following = frame[frame.index(1) + 1 :]
    end = following[0].token_ids if isinstance(following[0], Segment) else None
    return filled(following[1:] if end == tuple(after[-1:]) else following, ["", "", text])


def reply_end(tokenizer: Tokenizer) -> str:
    """The special token that ends the assistant's turn, such as Gemma's `<end_of_turn>`, which is not its end of sequence."""
    if not has_template(tokenizer):
        return tokenizer.eos_token
    frame = _frame(("user", "assistant"), tokenizer)
    after = frame[frame.index(1) + 1 :]
    return next((piece.text for piece in after if isinstance(piece, Segment)), tokenizer.eos_token)


def end_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of the tokens that end a reply."""
    ends = (tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(reply_end(tokenizer)))
    return frozenset(end for end in ends if end is not None)


def frame_tokens(tokenizer: Tokenizer) -> int:
    """The number of tokens added around a prompt: the template's, or BOS."""
    if has_template(tokenizer):
        return sum(len(encode_segment(segment, tokenizer)) for segment in user_turn("", tokenizer))
    return int(tokenizer.bos_token_id is not None)


def _takes_system(tokenizer: Tokenizer) -> bool:
    try:
        return 0 in _frame(("system", "user"), tokenizer)
    except CheckpointError:
        return False


def _without_system(messages: Sequence[Message]) -> list[Message]:
    system, user, *rest = messages
    texts = [message.content.strip() for message in (system, user) if isinstance(message.content, str)]  # only a reply holds segments
    return [Message("user", "\n\n".join(texts)), *rest]


def _frame(roles: tuple[Role, ...], tokenizer: Tokenizer, *, reasons: bool = False) -> tuple[Piece, ...]:
    """The text that the template writes around messages of these roles, with each message's number where its text belongs."""
    known = _frames.setdefault(tokenizer, {})
    key = (tokenizer.get_chat_template(), roles, reasons)
    if key not in known:
        text = _rendered(roles, tokenizer) if reasons or roles[-1] == "assistant" else _up_to_reply(roles, tokenizer)
        pieces = tuple(pieces_of(text, len(roles), tokenizer))
        if lost := next((role for number, role in enumerate(roles) if role != "system" and number not in pieces), None):
            raise _unusable(roles, f"it leaves out the {lost}'s message", tokenizer)
        known[key] = pieces
    return known[key]


def _up_to_reply(roles: tuple[Role, ...], tokenizer: Tokenizer) -> str:
    """The rendered template up to the reply to the last message, as in a conversation that includes the reply.

    If the template writes no thought into such a conversation but its generation prompt opens one (DeepSeek-R1), that thought is closed.
    A space before the reply is left to `reply_text`, because tokenizers treat it as part of the first word.
    """
    asks = _rendered(roles, tokenizer)
    before = _rendered((*roles, "assistant"), tokenizer).partition(slot(len(roles)))[0]
    if not before.startswith(asks) and not asks.startswith(before):
        begin = next(i for i, (one, other) in enumerate(zip(asks, before, strict=False)) if one != other)
        reason = f"it asks for a reply by {asks[begin:][:60]!r}, and writes {before[begin:][:60]!r} before one"
        raise _unusable((*roles, "assistant"), reason, tokenizer)
    prompt = asks + before.removeprefix(asks).rstrip(" ") if before.startswith(asks) else asks
    marks = opened_thought(prompt)
    return f"{prompt.rstrip()}\n\n{marks[1]}\n\n" if marks else prompt


def _rendered(roles: tuple[Role, ...], tokenizer: Tokenizer) -> str:
    """The template around slots, without the thinking mode that some templates turn on (Qwen3)."""
    messages = [{"role": role, "content": slot(number)} for number, role in enumerate(roles)]
    try:
        return rendered(messages, tokenizer, add_generation_prompt=roles[-1] == "user", enable_thinking=False)
    except ValueError as error:
        raise _unusable(roles, str(error), tokenizer) from None


def _unusable(roles: tuple[Role, ...], reason: str, tokenizer: Tokenizer) -> CheckpointError:
    return CheckpointError(
        f"{tokenizer.name_or_path}: its chat template does not support a conversation of {', '.join(roles)} ({reason}). "
        "Set chat_template to another FILE, or to none."
    )
