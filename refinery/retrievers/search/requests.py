"""Requests to a search engine: tried again while the fault may pass, and divided where one query of a batch is refused."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pydantic import Field

from refinery.errors import RetrievalError
from refinery.retrievers.base import IndexOptions

Item = TypeVar("Item")
Result = TypeVar("Result")

_PASSING_STATUSES = frozenset({408, 429})


class RequestOptions(IndexOptions):
    """How an engine on a server is asked. None of it is part of an index."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = frozenset({"timeout_seconds", "tries", "queries_per_request", "requests_at_once"})

    timeout_seconds: float = Field(default=60, gt=0)
    tries: int = Field(default=3, description="tries per request; the wait doubles before each retry", ge=1)
    queries_per_request: int = Field(default=64, ge=1)
    requests_at_once: int = Field(default=4, description="requests under way at the same time", ge=1)


class RefusedError(RetrievalError):
    """A request that would be refused again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request failed, and whether it may succeed when it is sent again."""

    reason: str
    passing: bool


def may_pass(status: int) -> bool:
    """Whether a server that answers with this status may do better later."""
    return status >= 500 or status in _PASSING_STATUSES


def retried(send: Callable[[], Result], *, tries: int, where: str, fault_of: Callable[[Exception], Fault | None], remedy: str) -> Result:
    """What `send` returns. `fault_of` says what an exception means; one that it does not know is raised as it is.

    Raises RefusedError for a fault that stays, RetrievalError after the last of `tries`.
    """
    reason = ""
    for attempt in range(tries):
        if attempt:
            time.sleep(2 ** (attempt - 1))
        try:
            return send()
        except Exception as error:
            if (fault := fault_of(error)) is None:
                raise
            reason = fault.reason[:200]
            if not fault.passing:
                raise RefusedError(f"{where}: refused a request ({reason}). {remedy}") from None
    raise RetrievalError(f"{where}: failed {tries} times ({reason}). {remedy}")


def divided(
    run: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
) -> Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]:
    """`run`, but a batch that is refused is halved until only the items at fault fail. For those, the error is the result."""

    async def run_divided(items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            return await run(items)
        except RefusedError as error:
            if len(items) == 1:
                return [error]
            half = len(items) // 2
            return [*await run_divided(items[:half]), *await run_divided(items[half:])]

    return run_divided
