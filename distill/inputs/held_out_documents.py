"""Hold documents out from training, so that a model is tested on questions about documents that it was not trained on."""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field, model_validator

from refinery.runtime.files.fingerprint import id_number
from refinery.runtime.recipe import Recipe

HELD_OUT = ("test", "validation")
TRAIN = "train"
_log = logging.getLogger(__name__)
_ROUNDING = 1e-9  # of the product of a share and a number


class Shares(Recipe):
    """The shares of the documents whose questions are held out; all others train."""

    validation: float = Field(default=0.0, description="share of the documents whose questions go to validation.jsonl", ge=0, lt=1)
    test: float = Field(default=0.0, description="share of the documents whose questions go to test.jsonl", ge=0, lt=1)

    @model_validator(mode="after")
    def _leave_some(self) -> "Shares":
        if self.validation + self.test >= 1:
            raise ValueError("validation and test leave no document to train on; their sum must be below 1")
        return self


def splits_of_documents(sizes: Mapping[str, int], shares: Shares) -> dict[str, str]:
    """The split of each document, so that the held-out ones have about their shares of the questions.

    `sizes` are how many questions are asked about each. Documents are taken by a hash of their names, so adding some moves few of the
    others: those that fit into the share, and then the smallest one that is left if more than half of it does. A share of less than half a
    document therefore holds none out. The document with the highest hash always trains.
    """
    ordered = sorted(sizes, key=id_number)
    splits, total = dict.fromkeys(ordered, TRAIN), sum(sizes.values())
    for split in HELD_OUT:
        free = [document for document in ordered[:-1] if splits[document] == TRAIN]
        splits |= dict.fromkeys(_taken(free, sizes, getattr(shares, split) * total + _ROUNDING), split)
    return splits


def _taken(documents: Sequence[str], sizes: Mapping[str, int], missing: float) -> list[str]:
    """Documents that together have about the size that is missing."""
    taken, left = list[str](), list[str]()
    for document in documents:
        fits = sizes[document] <= missing
        (taken if fits else left).append(document)
        missing -= fits * sizes[document]
    smallest = min(left, key=sizes.__getitem__, default=None)
    return [*taken, smallest] if smallest is not None and sizes[smallest] / 2 <= missing else taken


def sampled(sizes: Mapping[str, int], number: float) -> dict[str, int]:
    """The sizes in an even sample of about `number` over the documents."""

    def in_all(most: int) -> int:
        return sum(min(size, most) for size in sizes.values())

    most = bisect_left(range(max(sizes.values(), default=0)), number, key=in_all)
    return {document: min(size, most) for document, size in sizes.items()}


def log_splits(shares: Shares, splits: Mapping[str, str], asked: Mapping[str, int]) -> None:
    """Say how many questions will be asked for each split, and which share of the documents cannot be held out."""
    documents = Counter(splits.values())
    sizes = (f"{split} {asked.get(split, 0):,} about {documents[split]:,} document(s)" for split in (TRAIN, *HELD_OUT))
    _log.info("questions to ask: %s", ", ".join(sizes))
    for split in HELD_OUT:
        if (share := getattr(shares, split)) and split not in documents:
            message = "%s: %d document(s) are too few to hold out a share of %s, so none is. Add documents or raise the share."
            _log.warning(message, f"{shares.where}: {shares.key_of(split)}", len(splits), share)


def joint_split(splits: Iterable[str]) -> str:
    """The split of a question about several documents: `test` if one of them is, else `validation`, else `train`."""
    found = set(splits)
    return next((split for split in HELD_OUT if split in found), TRAIN)
