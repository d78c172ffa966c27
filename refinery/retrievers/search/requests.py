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

_PASSING = frozenset({408, 429})
_OF_ONE_QUERY = frozenset({400, 413, 422})


class RequestOptions(IndexOptions):
    """How an engine on a server is asked. None of it is part of an index."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = frozenset({"timeout_seconds", "tries", "queries_per_request", "requests_at_once"})

    timeout_seconds: float = Field(default=60, description="time limit of one request", gt=0)
    tries: int = Field(default=3, description="tries per request; the wait doubles before each retry", ge=1)
    queries_per_request: int = Field(default=64, description="most queries that share a request", ge=1)
    requests_at_once: int = Field(default=4, description="requests under way at the same time", ge=1)


class RefusedError(RetrievalError):
    """A request that failed perhaps because of one of its queries."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request failed. `status` is None when the server did not answer."""

    reason: str
    status: int | None = None

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status >= 500 or self.status in _PASSING

    @property
    def of_one_query(self) -> bool:
        """Whether the request may succeed without one of its queries. A server that breaks on a query answers 500 or 502."""
        return self.status in _OF_ONE_QUERY or self.status in (500, 502)


def retried(
    send: Callable[[], Result], *, tries: int, where: str, fault_of: Callable[[Exception], Fault | None], remedy: str, what: str = "search"
) -> Result:
    """What `send` returns. `fault_of` says what an exception means; one that it does not know is raised as it is.

    Raises RefusedError for a fault that may be that of one query, and else RetrievalError, both after the last of `tries`.
    """
    fault = Fault("")
    for attempt in range(tries):
        if attempt:
            time.sleep(2 ** (attempt - 1))
        try:
            return send()
        except Exception as error:
            if (found := fault_of(error)) is None:
                raise
            fault = found
        if not fault.passing:
            break
    error_type = RefusedError if fault.of_one_query else RetrievalError
    raise error_type(f"{where}: {what} failed ({fault.reason[:200]}). {remedy}")


Run = Callable[[Sequence[Item]], Awaitable[Sequence[Result]]]


def divided(run: Run[Item, Result], *, pieces: Run[Item, Result] | None = None) -> Run[Item, Result | Exception]:
    """`run`, but a batch that is refused is halved until only the queries at fault fail. For those, the error is the result.

    `pieces` runs the halves, if not as `run` does.
    """
    run_half = divided(pieces) if pieces else None

    async def run_divided(items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            return await run(items)
        except RefusedError as error:
            if len(items) == 1:
                return [error]
            again, half = run_half or run_divided, len(items) // 2
            return [*await again(items[:half]), *await again(items[half:])]

    return run_divided
