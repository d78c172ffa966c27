"""Training rows and prompts as segments, and their encoding to ids and labels.

A segment is text with a kind and a flag that says whether it is trained. Control segments are single tokens from the tokenizer. Every
other segment is encoded with control-token parsing off, so `[A_Response]` in a passage stays plain text. The same function encodes
prompts and training rows segment by segment, so training and inference agree token for token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from refinery.contract.plain_text import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError, UnwritableError

IGNORED_LABEL = -100
SegmentKind = Literal["template", "control_token", "prompt", "evidence", "query", "answer", "label"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a row. A `control_token` segment is exactly one token of the tokenizer; all other text is plain.

    Text that a model wrote keeps its `token_ids`, because encoding it again may give others. So does a chat template's special token, of
    kind `template`.
    """

    text: str
    kind: SegmentKind
    trained: bool = False
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """Token ids, labels (-100 if not trained) and the kind of each token. All three have the same length.

    A training row also has the id of its question.
    """

    input_ids: list[int]
    labels: list[int]
    kinds: list[SegmentKind]
    question_id: str = field(default="", compare=False)


def encode(segments: Sequence[Segment], tokenizer: Tokenizer) -> EncodedRow:
    """Encode a row, with BOS first unless a chat template begins it, and check it by decoding the trained text.

    Raises CheckpointError when a control token is not a single token of this tokenizer, and UnwritableError as `check_writable` does.
    """
    ids = bos_ids(segments, tokenizer)
    labels = [IGNORED_LABEL] * len(ids)
    kinds: list[SegmentKind] = list[SegmentKind](["prompt"]) * len(ids)
    for segment in segments:
        token_ids = encode_segment(segment, tokenizer)
        ids += token_ids
        labels += token_ids if segment.trained else [IGNORED_LABEL] * len(token_ids)
        kinds.extend(segment.kind for _ in token_ids)
    check_writable(segments, tokenizer)
    return EncodedRow(ids, labels, kinds)


def bos_ids(segments: Sequence[Segment], tokenizer: Tokenizer) -> list[int]:
    """BOS if the tokenizer has one, unless the row begins with a chat template, which writes its own."""
    templated = bool(segments) and segments[0].kind == "template"
    return [] if templated or tokenizer.bos_token_id is None else [tokenizer.bos_token_id]


def encode_segment(segment: Segment, tokenizer: Tokenizer) -> list[int]:
    """Token ids of one segment, without BOS."""
    if segment.token_ids is not None:
        return list(segment.token_ids)
    if segment.kind == "control_token":
        return [control_token_id(segment.text, tokenizer)]
    return encode_text(segment.text, tokenizer)


def control_token_id(token: str, tokenizer: Tokenizer) -> int:
    """The id of a control token in the tokenizer. Raises CheckpointError when the tokenizer has no such token."""
    token_id = tokenizer.convert_tokens_to_ids(token)
    if token_id is None or token_id == tokenizer.unk_token_id:
        raise CheckpointError(
            f"tokenizer {tokenizer.name_or_path!r} has no control token {token!r}. Add it before training (train/families/vocabulary.py)."
        )
    return token_id


def check_writable(segments: Sequence[Segment], tokenizer: Tokenizer) -> None:
    """Raise UnwritableError for trained text that its tokens do not decode to, apart from white space and normalization.

    A model trained on such a row would learn to write something else, such as `<unk>` or a missing letter.
    """
    for segment in segments:
        if not segment.trained or segment.kind == "control_token":
            continue
        decoded = tokenizer.decode(encode_segment(segment, tokenizer), clean_up_tokenization_spaces=False)
        wanted = _comparable(_normalized(segment.text, tokenizer))
        if wanted not in (_comparable(decoded), _comparable(_normalized(decoded, tokenizer))):
            raise UnwritableError(
                f"tokenizer {tokenizer.name_or_path!r} does not reproduce the trained text {segment.text!r}; it decodes to {decoded!r}."
            )


def _normalized(text: str, tokenizer: Tokenizer) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend.normalizer.normalize_str(text) if backend and backend.normalizer else text


def _comparable(text: str) -> str:
    """The text without white space, which SentencePiece writes as `▁`."""
    return "".join(text.replace("▁", " ").split())
