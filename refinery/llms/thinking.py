"""What a reasoning model thinks before it replies: kept apart, so that it is never an answer, a query or a label."""

from collections.abc import Sequence

from refinery.contract.tokenizer import Tokenizer

_OPEN, _CLOSE = "<think>", "</think>"


def split_thinking(text: str) -> tuple[str, str]:
    """(the reasoning, the reply after it). A text that opens its reasoning and does not close it has no reply yet."""
    thought, closed, reply = text.rpartition(_CLOSE)
    if closed:
        return thought.replace(_OPEN, "", 1).strip(), reply.strip()
    if text.lstrip().startswith(_OPEN):
        return text.lstrip().removeprefix(_OPEN).strip(), ""
    return "", text


def read_written(token_ids: Sequence[int], tokenizer: Tokenizer) -> tuple[str, str]:
    """(the reasoning, the reply) of what a model wrote, without special tokens, of which some tokenizers count `</think>` as one."""
    close = tokenizer.convert_tokens_to_ids(_CLOSE)
    if close is None or close == tokenizer.unk_token_id or close not in token_ids:
        return split_thinking(tokenizer.decode(token_ids, skip_special_tokens=True).strip())
    end = len(token_ids) - 1 - list(reversed(token_ids)).index(close)
    thought, reply = (tokenizer.decode(part, skip_special_tokens=True).strip() for part in (token_ids[:end], token_ids[end + 1 :]))
    return thought.removeprefix(_OPEN).strip(), reply
