"""What a reasoning model thinks before it replies: kept apart, so that it is never an answer, a query or a label."""

from collections.abc import Sequence

from refinery.contract.tokenizer import Tokenizer

_OPEN, _CLOSE = "<think>", "</think>"
# Other models' marks around their reasoning: Claude's and Phi's prompts, Magistral, Kimi-VL, Seed-OSS, and gpt-oss, of which a server that
# does not know its format sends the raw channels.
_OTHER_MARKS = (
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
_BETWEEN_CHANNELS = "<|end|>"
_AFTER_CHANNELS = ("<|return|>", "<|end|>")


def split_thinking(text: str) -> tuple[str, str]:
    """(the reasoning, the reply after it). A text that opens its reasoning and does not close it has no reply yet."""
    thought, closed, reply = text.rpartition(_CLOSE)
    if closed:
        return thought.replace(_OPEN, "", 1).strip(), reply.strip()
    start = text[:100].lstrip()
    if start.startswith(_OPEN):
        return text.lstrip().removeprefix(_OPEN).strip(), ""
    for mark, end in _OTHER_MARKS:
        if start.startswith(mark):
            return _split_at(text.lstrip().removeprefix(mark), end)
    return "", text


def _split_at(text: str, end: str) -> tuple[str, str]:
    """The text before and after the last `end`."""
    thought, closed, reply = text.rpartition(end)
    if not closed:
        return text.strip(), ""
    for mark in _AFTER_CHANNELS:
        reply = reply.strip().removesuffix(mark)
    return thought.partition(_BETWEEN_CHANNELS)[0].strip(), reply.strip()


def read_written(token_ids: Sequence[int], tokenizer: Tokenizer) -> tuple[str, str]:
    """(the reasoning, the reply) of what a model wrote, without special tokens, of which some tokenizers count `</think>` as one."""
    close = tokenizer.convert_tokens_to_ids(_CLOSE)
    if close is None or close == tokenizer.unk_token_id or close not in token_ids:
        return split_thinking(tokenizer.decode(token_ids, skip_special_tokens=True).strip())
    end = len(token_ids) - 1 - list(reversed(token_ids)).index(close)
    thought, reply = (tokenizer.decode(part, skip_special_tokens=True).strip() for part in (token_ids[:end], token_ids[end + 1 :]))
    return thought.removeprefix(_OPEN).strip(), reply
