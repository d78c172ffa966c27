"""The tokenizer interface that the project needs. transformers' tokenizers have it with looser types, so a loaded one is cast once."""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Tokenizer(Protocol):
    """A checkpoint's tokenizer. Every generator's has an end of sequence, and every trained model's has a padding token."""

    name_or_path: str
    bos_token: str | None
    bos_token_id: int | None
    eos_token: str
    eos_token_id: int
    pad_token: str | None
    pad_token_id: int
    unk_token_id: int | None
    all_special_ids: list[int]
    model_max_length: int
    chat_template: Any
    backend_tokenizer: Any  # of the library `tokenizers`, which has no types

    def __call__(self, text: str, *args: Any, **options: Any) -> Mapping[str, Any]:
        """`input_ids` of the text, and with `return_offsets_mapping=True` the `offset_mapping` (start, stop) of each."""
        ...

    def __len__(self) -> int:
        """The size of the vocabulary, added tokens included."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False, **options: Any) -> str:
        """The text of some tokens."""
        ...

    def convert_tokens_to_ids(self, tokens: str, /) -> int | None:
        """The id of one token."""
        ...

    def convert_ids_to_tokens(self, ids: int, /) -> str:
        """The token of one id."""
        ...

    @property
    def added_tokens_decoder(self) -> Container[int]:
        """The ids of the added tokens."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """Every token with its id."""
        ...

    def get_chat_template(self) -> str:
        """The template's source."""
        ...

    def apply_chat_template(self, conversation: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """A conversation as text, with `tokenize=False`."""
        ...

    def add_special_tokens(self, special_tokens_dict: dict[str, Any], /, **options: Any) -> int:
        """Add tokens; returns how many are new."""
        ...

    def pad(self, encoded_inputs: list[dict[str, list[int]]], /, **options: Any) -> Any:
        """Rows as one padded batch."""
        ...

    def save_pretrained(self, save_directory: str | Path, /) -> Any:
        """Write the tokenizer's files."""
        ...
