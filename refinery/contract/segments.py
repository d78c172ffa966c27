"""A training row or a prompt as segments, and their encoding to ids and labels.

A segment is text with a kind and whether it is trained. Control segments are single tokens looked up in the tokenizer; every other
segment is encoded with control-token parsing off, so `[A_Response]` inside a passage stays plain text. A prompt and the row it
opens are encoded segment by segment by the same function, which makes training and inference agree token for token.
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

    What a model wrote keeps its `token_ids`, since its text need not encode to them again; so does a chat template's special token, of
    kind `template`.
    """

    text: str
    kind: SegmentKind
    trained: bool = False
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """Token ids, labels (-100 where not trained) and the kind of each token; all three have the same length.

    A training row also says which question it is about.
    """

    input_ids: list[int]
    labels: list[int]
    kinds: list[SegmentKind]
    question_id: str = field(default="", compare=False)


def encode(segments: Sequence[Segment], tokenizer: Tokenizer) -> EncodedRow:
    """Encode a row, BOS first unless a chat template opens it, and check it by decoding what is trained.

    Raises CheckpointError when a control token is not one token of this tokenizer, UnwritableError as `check_writable`.
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
    """BOS, where the tokenizer has one and no chat template, which writes its own, opens the row."""
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
    """The id of a control token, always from the tokenizer. Raises CheckpointError when the tokenizer has no such token."""
    token_id = tokenizer.convert_tokens_to_ids(token)
    if token_id is None or token_id == tokenizer.unk_token_id:
        raise CheckpointError(
            f"tokenizer {tokenizer.name_or_path!r} has no control token {token!r}. Add it before training (train/families/vocabulary.py)."
        )
    return token_id


def check_writable(segments: Sequence[Segment], tokenizer: Tokenizer) -> None:
    """Raise UnwritableError for trained text that its tokens do not decode to, but for white space and the tokenizer's normalization.

    A model trained on such a row would learn to write something else: `<unk>`, or nothing where a letter was.
    """
    for segment in segments:
        if not segment.trained or segment.kind == "control_token":
            continue
        decoded = tokenizer.decode(encode_segment(segment, tokenizer), clean_up_tokenization_spaces=False)
        wanted = _comparable(_normalized(segment.text, tokenizer))
        if wanted not in (_comparable(decoded), _comparable(_normalized(decoded, tokenizer))):
            raise UnwritableError(
                f"tokenizer {tokenizer.name_or_path!r} does not decode the trained text {segment.text!r}; it gives {decoded!r}."
            )


def _normalized(text: str, tokenizer: Tokenizer) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend.normalizer.normalize_str(text) if backend and backend.normalizer else text


def _comparable(text: str) -> str:
    """Without white space, which SentencePiece writes as `▁`."""
    return "".join(text.replace("▁", " ").split())
