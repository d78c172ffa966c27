"""Teachers in order: a request that one refuses, withholds, truncates or cannot answer goes to the next.

An endpoint that accepts no requests hands over to the next one until the run ends. That a request was handed over is stored, so a resumed
run takes the reply that a later teacher gave, and does not ask an earlier one again.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from distill.teacher.teacher import RejectedRow, RequestLog, Teacher
from refinery.llms.served.endpoint import UnusableEndpoint
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.prompts.render import turns_of
from refinery.stores.base import effect_key

_log = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)
V = TypeVar("V")
Messages = tuple[tuple[str, str], ...]


class Fallback:
    """Asks each of its teachers in order until one gives a usable reply."""

    def __init__(self, teachers: Sequence[Teacher]) -> None:
        self._teachers = teachers

    async def ask(self, prompt: str, schema: type[T], asked: RequestLog, *, rollout: int = 0) -> T:
        """The first usable reply to `prompt` as a `schema`.

        Raises RejectedRow if no teacher gives one, UnusableEndpoint if none accepts requests, BudgetExhausted if the run cannot continue.
        """
        return await self._first(lambda teacher: teacher.ask(prompt, schema, asked, rollout=rollout), turns_of(prompt), schema, rollout)

    async def text(self, prompt: str, asked: RequestLog, *, rollout: int = 0) -> str:
        """The first raw reply to `prompt`. Raises the same errors as `ask`."""
        return await self._first(lambda teacher: teacher.text(prompt, asked, rollout=rollout), (("user", prompt),), None, rollout)

    async def _first(self, ask: Callable[[Teacher], Awaitable[V]], messages: Messages, schema: type[BaseModel] | None, rollout: int) -> V:
        requests = [teacher.request(messages, schema, rollout) for teacher in self._teachers]
        failures: list[RejectedRow | UnusableEndpoint] = []
        for number, teacher in enumerate(self._teachers):
            if self._handed_over(number, requests):
                continue
            try:
                return await ask(teacher)
            except RejectedRow as error:
                failures.append(error)
            except UnusableEndpoint as error:
                self._continue_without(number, error)
                failures.append(error)
            await self._note(number, requests)
        raise _failure(failures)

    def _handed_over(self, number: int, requests: Sequence[ChatRequest]) -> bool:
        """Whether this teacher failed to reply in an earlier attempt of the run, and a later one replied."""
        store, request = self._teachers[number].store, requests[number]
        noted = store.get(request.key) is None and store.get(_note_key(request)) is not None
        return noted and any(store.get(later.key) is not None for later in requests[number + 1 :])

    async def _note(self, number: int, requests: Sequence[ChatRequest]) -> None:
        """Store that the request goes to the next teacher, unless the stored reply says so itself."""
        store, request = self._teachers[number].store, requests[number]
        if number + 1 < len(requests) and store.get(request.key) is None and store.get(_note_key(request)) is None:
            await store.put(_note_key(request), True)

    def _continue_without(self, number: int, error: UnusableEndpoint) -> None:
        """Use this teacher's stored replies only. Raises the error if no other teacher accepts requests."""
        teacher, others = (
            self._teachers[number],
            [one for one in self._teachers if one.unusable is None and one is not self._teachers[number]],
        )
        if not others:
            raise error
        if teacher.unusable is None:
            teacher.unusable = error
            names = " and ".join(f"{one.role} ('{one.config.model}')" for one in others)
            _log.warning("%s: %s The run continues with %s.", teacher.role, error, names)


def _note_key(request: ChatRequest) -> bytes:
    return effect_key("handed over", request.key.hex())


def _failure(failures: Sequence[RejectedRow | UnusableEndpoint]) -> RejectedRow:
    """Why no teacher gave a reply. If one may give it in a later attempt, the reason is `no_reply`, which is asked again."""
    reasons = [error.reason if isinstance(error, RejectedRow) else "no_reply" for error in failures]
    last = failures[-1].detail if isinstance(failures[-1], RejectedRow) else str(failures[-1])
    detail = last if len(failures) == 1 else f"{last} (reasons of the teachers, in order: {', '.join(reasons)})"
    return RejectedRow("no_reply" if "no_reply" in reasons else reasons[-1], detail)
