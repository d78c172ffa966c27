"""Hold documents out from training, so that a model is tested on questions about documents that it was not trained on."""

from collections.abc import Iterable
from itertools import pairwise

from pydantic import Field, model_validator

from refinery.runtime.files.fingerprint import id_number
from refinery.runtime.recipe import Recipe

HELD_OUT = ("test", "validation")
TRAIN = "train"


class Shares(Recipe):
    """The shares of the documents whose questions are held out; all others train."""

    validation: float = Field(default=0.0, description="share of the documents whose questions go to validation.jsonl", ge=0, lt=1)
    test: float = Field(default=0.0, description="share of the documents whose questions go to test.jsonl", ge=0, lt=1)

    @model_validator(mode="after")
    def _leave_some(self) -> "Shares":
        if self.validation + self.test >= 1:
            raise ValueError("validation and test leave no document to train on; their sum must be below 1")
        return self


def splits_of_documents(documents: Iterable[str], shares: Shares) -> dict[str, str]:
    """The split of each document, by a hash of its name, so that adding documents moves none of the others.

    Few documents make two exceptions. A share of less than half a document holds none out. And if a larger share would hold none out by
    chance, it takes the training document with the lowest hash, which trains again once there is another; the highest always trains.
    """
    ordered = sorted(set(documents), key=id_number)
    splits = dict.fromkeys(ordered, TRAIN)
    bounds = pairwise((0.0, shares.test, shares.test + shares.validation))
    for split, (low, high) in zip(HELD_OUT, bounds, strict=True):
        if (high - low) * len(ordered) < 0.5:
            continue
        free = [document for document in ordered[:-1] if splits[document] == TRAIN]
        chosen = [document for document in free if low <= id_number(document) / 2**64 < high]
        splits |= dict.fromkeys(chosen or free[:1], split)
    return splits


def joint_split(splits: Iterable[str]) -> str:
    """The split of a question about several documents: `test` if one of them is, else `validation`, else `train`."""
    found = set(splits)
    return next((split for split in HELD_OUT if split in found), TRAIN)
