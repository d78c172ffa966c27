"""Parsing of a path's text as in RQ-RAG's inference.py, for `official`: its regular expressions over the whole text, here over token ids.

So a control token counts wherever the model wrote it, but the same characters in a question or a passage do not.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakSet

from refinery.contract.control_tokens import token_for
from refinery.contract.formats import END, SEARCH_ACTIONS
from refinery.contract.records import Passage
from refinery.contract.segments import control_token_id, encode_text
from refinery.contract.tokenizer import Tokenizer

NO_QUERY = "dummy"  # the query of inference.py if none has ended yet
NOTHING_FOUND = Passage(id="dummy", title="dummy", text="the search engine did not return anything")  # the passage it then shows
_PREFIX = "▁"
_checked: WeakSet[Any] = WeakSet()


def last_query(token_ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """The query that inference.py searches for. A query that did not end extends to the next `[EOS]`, evidence included."""
    found = _last_between(token_ids, [token_for(action).token for action in SEARCH_ACTIONS], tokenizer)
    return NO_QUERY if found is None else found


def last_answer(token_ids: Sequence[int], tokenizer: Tokenizer) -> str | None:
    """The answer that inference.py reads, or None if none ended."""
    return _last_between(token_ids, [token_for("answer").token], tokenizer)


def _last_between(token_ids: Sequence[int], openings: Collection[str], tokenizer: Tokenizer) -> str | None:
    """The last text that `[opening](.*?)[EOS]` finds, from the left and without overlaps, as `re.findall` does."""
    opens, end = {control_token_id(opening, tokenizer) for opening in openings}, control_token_id(END.text, tokenizer)
    start, found = None, None
    for position, token_id in enumerate(token_ids):
        if start is None and token_id in opens:
            start = position + 1
        elif start is not None and token_id == end:
            found, start = token_ids[start:position], None
    return None if found is None else tokenizer.decode(found, clean_up_tokenization_spaces=False).strip()


def warn_of_other_prefixes(tokenizer: Tokenizer) -> None:
    """Warn once if a SentencePiece tokenizer does not write `▁` after a control token, as that of the released checkpoint does.

    That checkpoint learned `[A_Response] ▁ <line break>` (sample_from_tree.py looks for these ids), which is `legacy: true`. We encode the
    text after a control token separately, which always gives `▁`; a script that encodes the whole text with this tokenizer gives none.
    """
    if tokenizer in _checked:
        return
    _checked.add(tokenizer)
    alone = encode_text("\n", tokenizer)
    if not alone or tokenizer.convert_ids_to_tokens(alone[0]) != _PREFIX:
        return
    whole = tokenizer(f"{END.text}\n", add_special_tokens=False)["input_ids"]
    if whole[-len(alone) :] != alone:
        logging.getLogger(__name__).warning(
            "tokenizer %r writes '▁' only at the beginning of a text. That of RQ-RAG's released checkpoint also writes it after control"
            " tokens, as `format: official` does. Set `legacy: true` in its tokenizer_config.json to agree with it.",
            tokenizer.name_or_path,
        )
