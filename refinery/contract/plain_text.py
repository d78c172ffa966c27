"""Encode outside text safely: nothing that a user, a passage or a teacher wrote becomes an added token.

A tokenizer finds the names of its added tokens (`</s>`, `[A_Response]`, `<think>`) in any text. transformers' `split_special_tokens`
ignores those that are marked as special, so we use a copy of the tokenizer that marks all of them. If a name is also one of the model's
ordinary pieces, the copy breaks it up. The tokenizer itself is unchanged, for decoding and saving.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

from refinery.contract.tokenizer import Tokenizer

# Each tokenizer's copy, with the number of tokens when it was made.
_COPIES: WeakKeyDictionary[Any, tuple[int, Any]] = WeakKeyDictionary()


def encode_text(text: str, tokenizer: Tokenizer) -> list[int]:
    """Token ids of outside text, in which nothing becomes an added token."""
    return plain_text_tokenizer(tokenizer)(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def plain_text_tokenizer(tokenizer: Tokenizer) -> Any:
    """The tokenizer's copy for outside text, made again only when tokens are added. Call it with `split_special_tokens=True`."""
    if not hasattr(tokenizer, "backend_tokenizer"):
        return tokenizer  # a fake tokenizer, which has no added tokens
    size = len(tokenizer)
    known, copy = _COPIES.get(tokenizer, (0, None))
    if known != size:
        copy = deepcopy(tokenizer)
        hide_added_tokens(copy)
        _COPIES[tokenizer] = size, copy
    return copy


def added_token_names(tokenizer: Tokenizer) -> list[str]:
    """The added tokens that outside text must not produce, apart from runs of white space, which some tokenizers add (GPT-NeoX)."""
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
    return [token.content for token in added if token.content.replace("▁", " ").strip()]


def hide_added_tokens(tokenizer: Tokenizer) -> None:
    """Change a tokenizer that is used only for encoding so that with `split_special_tokens` it finds no added token in a text."""
    from tokenizers import AddedToken, normalizers

    backend, names = tokenizer.backend_tokenizer, added_token_names(tokenizer)
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    backend.encode_special_tokens = True
    space = _space(backend.normalizer)
    # After the tokenizer's own normalizer, which may turn other text into a name (T5's does so with full-width letters).
    breaks = [normalizers.Replace(name, f"{name[0]}{space}{name[1:]}") for name in _found_by_model(backend, names)]
    if breaks:
        backend.normalizer = normalizers.Sequence([*([backend.normalizer] if backend.normalizer else []), *breaks])


def _found_by_model(backend: Any, names: Iterable[str]) -> list[str]:
    """The names that the model may read as one of its ordinary pieces. Unigram models may use any piece; other models are tested."""
    from tokenizers import models

    if isinstance(backend.model, models.Unigram):
        return [name for name in names if backend.model.token_to_id(name) is not None]
    return [name for name in names if backend.token_to_id(name) in backend.encode(f"{name} a{name}a {name}", add_special_tokens=False).ids]


def _space(normalizer: Any) -> str:
    """The text that a space becomes inside a text."""
    normalized = normalizer.normalize_str("a b") if normalizer else "a b"
    return normalized.partition("a")[2].removesuffix("b") or " "
