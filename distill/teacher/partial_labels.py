"""Rows that are made of several independent requests: one that cannot be read does not take the others' labels with it."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Record

T = TypeVar("T")


class LabeledParts(list[Any]):
    """A question's records, the part that each is about, such as a passage's id, and why other parts have none (`unlabeled`)."""

    def __init__(self, records: Iterable[Record], parts: Sequence[str], unlabeled: Mapping[str, RejectedRow]) -> None:
        super().__init__(records)
        self.parts, self.unlabeled = parts, unlabeled


async def settled(requests: Iterable[Awaitable[T]]) -> list[T | RejectedRow]:
    """The results, and the rejections among them, once all have ended: an error that stops the run interrupts no request that is paid."""
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, RejectedRow):
            raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, RejectedRow) or not isinstance(outcome, BaseException)]


def check_some_kept(outcomes: Iterable[Any]) -> None:
    """Raise the first rejection if there is nothing else, or one that a later attempt may not meet: then the whole row is asked again."""
    outcomes = list(outcomes)
    rejections = [outcome for outcome in outcomes if isinstance(outcome, RejectedRow)]
    passing = [rejected for rejected in rejections if rejected.may_pass]
    if passing or (rejections and len(rejections) == len(outcomes)):
        raise (passing or rejections)[0]


def labeled_parts(outcomes: Mapping[str, Record | RejectedRow]) -> LabeledParts:
    """The records of the parts that have one. Raises RejectedRow as `check_some_kept` does."""
    check_some_kept(outcomes.values())
    records = {part: outcome for part, outcome in outcomes.items() if isinstance(outcome, Record)}
    unlabeled = {part: outcome for part, outcome in outcomes.items() if isinstance(outcome, RejectedRow)}
    return LabeledParts(records.values(), list(records), unlabeled)


def unlabeled_of(records: Sequence[Record]) -> Mapping[str, RejectedRow]:
    """Why parts of a row have no label, by part."""
    return records.unlabeled if isinstance(records, LabeledParts) else {}


def parts_of(records: Sequence[Record]) -> Sequence[str]:
    """What each record is about, or its number where a row has no named parts."""
    return records.parts if isinstance(records, LabeledParts) else [str(number) for number in range(len(records))]
