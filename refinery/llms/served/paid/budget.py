"""The cost of replies, and a hard cap, which holds because the worst case is reserved and on disk before a request is sent.

Amounts are whole billionths of a dollar, each rounded up, so that settled reservations add up to exactly 0, unlike sums of floats.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any, Protocol, TypeVar

from refinery.errors import LLMError, RecipeError
from refinery.installed import install_extra
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply, UnusableEndpoint
from refinery.llms.served.paid.prices import TokenPrices, known_price
from refinery.stores.base import ReplyStore

R = TypeVar("R", bound=Reply)

_NANO = 10**9  # per dollar


class PricedRequest(Protocol):
    """A request with a key in a reply store, and the most that it can cost."""

    @property
    def key(self) -> bytes:
        """A hash of all that can change the reply."""
        ...

    def most_prompt_tokens(self) -> int:
        """An upper bound of the prompt's tokens."""
        ...

    def most_tokens(self, config: EndpointConfig) -> int:
        """The most tokens of the reply."""
        ...


class BudgetExhausted(LLMError):
    """The next request could exceed `max_cost_usd`, so it was not sent."""


class Spending:
    """The amount that a job has spent in all its attempts, in billionths of a dollar by endpoint (None: some of it at an unknown price).

    It is stored before a request is sent, including the worst case of all open requests. That is the most that a killed attempt can have
    paid, so a cap holds across attempts. All endpoints of the job share it; without a store it covers only this attempt.
    """

    def __init__(self, store: ReplyStore | None = None, job: str = "") -> None:
        self._store, self._job = store, job
        earlier = store.costs(job) if store else {}
        self.spent: dict[str, int | None] = earlier or {}
        self._persisted, self._unknown = earlier, earlier is None
        self.reserved: Counter[str] = Counter()
        self.on_its_way: Counter[str] = Counter()  # the part of the reservations that may be paid but unanswered if the process is killed
        self.settled = asyncio.Event()

    @property
    def committed(self) -> int:
        """The amount that is spent or reserved for open requests."""
        return sum(nano or 0 for nano in self.spent.values()) + self.reserved.total()

    def enter(self, endpoint: str) -> None:
        """Add an endpoint of the job."""
        self.spent.setdefault(endpoint, None if self._unknown else 0)

    def persist(self) -> asyncio.Future[None] | None:
        """Write it to disk together with everything else from this turn of the event loop; None if it is already on disk."""
        at_most = {name: None if nano is None else nano + self.on_its_way[name] for name, nano in self.spent.items()}
        if self._store is None or at_most == self._persisted:
            return None
        self._persisted = at_most
        return self._store.put_costs(self._job, at_most)


@dataclass(slots=True)
class Reservation:
    """The worst case of one try of the request with this `key`, in billionths of a dollar, and its state.

    It is `held` while the amount is set aside, and `answered` once a reply is entered. `unseen_tries` counts earlier tries whose replies
    never came, which are charged.
    """

    key: bytes
    worst: int
    held: bool = False
    unseen_tries: int = 0
    answered: bool = False


class Budget:
    """The cost of one endpoint's requests, and the limit on it.

    `factor` is the transport's discount on the price (batch jobs: 0.5). `lost_if_killed` is the maximum number of requests that are paid
    but unanswered if the process is killed: those open at once, or none if the next attempt collects them (batch jobs).
    """

    def __init__(
        self,
        config: EndpointConfig,
        cap_usd: float | None,
        *,
        factor: float = 1.0,
        spending: Spending | None = None,
        endpoint: str = "teacher",
        lost_if_killed: int | None = None,
    ) -> None:
        self.config, self.cap, self._endpoint = config, cap_usd, endpoint
        self.price, self.source = known_price(config)
        self._spending = spending or Spending()
        self._spending.enter(endpoint)
        if cap_usd is not None:
            self._check_cap()
        self._cap = None if cap_usd is None else int((Decimal(str(cap_usd)) * _NANO).to_integral_value(ROUND_FLOOR))
        self._prices, self._cached_in_full = TokenPrices(self.price, factor), 0
        self._lost_if_killed = config.calls_in_flight * len(config.base_urls) if lost_if_killed is None else lost_if_killed
        self._largest = self._cut_off = self._attempt = 0
        self._open: dict[bytes, Reservation] = {}
        self.stopped_by: LLMError | None = None  # the error that forbids further spending

    def _check_cap(self) -> None:
        """Raise RecipeError for a cap that cannot be enforced."""
        if self.price is None:
            raise RecipeError(
                f"{self.config.where}: max_cost_usd: no price is known for '{self.config.model}'. Set {self.config.key_of('price')}, or "
                f"install the extra `prices`: {install_extra('prices')}"
            )
        if None in self._spending.spent.values():
            raise RecipeError(
                f"{self.config.where}: max_cost_usd: earlier attempts of this run paid at unknown prices, so the rest of the cap is "
                "unknown. Start a run with another output_dir and this run's store as `store`: it pays only for new requests, and all "
                "of them count."
            )

    @property
    def spent(self) -> float | None:
        """The cost of all attempts in US dollars; None if a part of it is unknown."""
        return _dollars(self._spending.spent[self._endpoint])

    def cost(self, reply: Reply, request: PricedRequest) -> float | None:
        """The cost of one reply in US dollars; None if the price is unknown."""
        if self.price is None:
            return None
        counted = self._counted(reply)
        return _dollars(self.worst(request) if counted is None else counted)

    async def reserve(self, request: PricedRequest) -> Reservation:
        """Reserve the most that the request can cost. Raises BudgetExhausted if it exceeds the cap and no reservation is left to settle."""
        reservation = Reservation(request.key, self.worst(request))
        await self._hold(reservation)
        self._open[request.key] = reservation
        return reservation

    async def admit(self, request: PricedRequest, unseen_tries: int) -> None:
        """Reserve again before each try, because an earlier try without an answer may be charged too.

        Raises the same errors as `reserve`, and the error that stops the run.
        """
        if self.stopped_by is not None:
            raise self.stopped_by
        reservation = self._open.get(request.key)
        if reservation is not None and unseen_tries > reservation.unseen_tries:
            self._charge_unseen(reservation, unseen_tries)
            self._release(reservation)
            await self._hold(reservation)

    async def _hold(self, reservation: Reservation) -> None:
        worst, spending = reservation.worst, self._spending
        while self._cap is not None and spending.committed + worst > self._cap:
            if not spending.reserved.total():
                left = f"{_dollars(spending.committed):.4f} is spent, and the next request may cost {_dollars(worst):.4f}"
                raise BudgetExhausted(f"max_cost_usd {self.cap}: {left}. Raise it and pass --resume.")
            spending.settled.clear()
            await spending.settled.wait()
        if self.stopped_by is not None:
            raise self.stopped_by
        self._largest, reservation.held = max(self._largest, worst), True
        self._set_aside(worst)
        self._spend(0)
        if self._lost_if_killed and (persisted := spending.persist()) is not None:
            try:
                await persisted
            except BaseException:
                self._release(reservation)
                raise

    def _release(self, reservation: Reservation) -> None:
        if reservation.held:
            reservation.held = False
            self._set_aside(-reservation.worst)

    def _charge_unseen(self, reservation: Reservation, tries: int) -> None:
        if tries > reservation.unseen_tries:
            self._spend((tries - reservation.unseen_tries) * reservation.worst)
            reservation.unseen_tries = tries

    def worst(self, request: PricedRequest) -> int:
        """The most that one try can cost, in billionths of a dollar; 0 if the price is unknown."""
        return 0 if self.price is None else self._prices.at_most(request.most_prompt_tokens(), request.most_tokens(self.config))

    async def settled(self, reservation: Reservation, reply: Awaitable[R]) -> R:
        """The reply to a request, after its cost has replaced its reservation."""
        answer, unseen = None, 0
        try:
            answer = await reply
            unseen = answer.unseen_tries
            return answer
        except (RefusedRequest, UnusableEndpoint) as error:
            unseen = error.unseen_tries
            raise
        except asyncio.CancelledError:
            unseen = 0 if reservation.answered else self._cut_off_tries()
            raise
        finally:
            self.settle(reservation, answer, unseen)

    def enter(self, key: bytes, reply: Reply) -> None:
        """Record a reply's cost in the same turn in which it is stored, so that both reach the disk or neither does.

        The reply may come from a batch job of an earlier attempt.
        """
        reservation = self._open.pop(key, None) or Reservation(key, 0)
        counted = self._counted(reply)
        self._spend(reservation.worst if counted is None else counted)
        self._release(reservation)
        reservation.answered = True
        self._spending.persist()

    def settle(self, reservation: Reservation, reply: Reply | None, unseen_tries: int) -> None:
        """Replace a reservation by the actual cost. A try without an answer may be charged, so it counts as its worst case."""
        self._open.pop(reservation.key, None)
        self._charge_unseen(reservation, unseen_tries)
        if not reservation.answered:
            counted = self._counted(reply) if reply else 0
            self._spend(reservation.worst if counted is None else counted)
        self._release(reservation)

    def _spend(self, nano: int) -> None:
        self._attempt += nano
        before = self._spending.spent[self._endpoint]
        self._spending.spent[self._endpoint] = None if before is None or self.price is None else before + nano

    def _set_aside(self, nano: int) -> None:
        reserved, name = self._spending.reserved, self._endpoint
        reserved[name] += nano
        self._spending.on_its_way[name] = min(reserved[name], self._largest * self._lost_if_killed)
        if nano < 0:
            self._spending.settled.set()

    def _cut_off_tries(self) -> int:
        """How many tries to charge for a canceled request: 1 if it may have been sent, 0 if it was still in a queue."""
        self._cut_off += 1
        return int(self._cut_off <= self._lost_if_killed)

    async def close(self) -> None:
        """Store the final amount."""
        if (persisted := self._spending.persist()) is not None:
            await persisted

    def _counted(self, reply: Reply) -> int | None:
        """The cost by the server's token counts; None if it counted none (no prompt is empty), so that the worst case may be charged."""
        if self.price is None:
            return 0
        if reply.num_prompt_tokens <= 0 or (reply.num_completion_tokens <= 0 and reply.text):
            return None
        return self._prices.of(reply)

    def count_cached(self, reply: Reply) -> None:
        """Count the cached tokens of a reply, new or stored, if they have no separate price: the amount spent is then an upper bound."""
        if self.price is not None and self.price.cached is None:
            self._cached_in_full += reply.num_cached_tokens

    def summary(self) -> dict[str, Any]:
        """For `metrics.json`: dollars paid in all attempts and in this one (null: unknown), and the source of the prices."""
        attempt = None if self.price is None else _dollars(self._attempt)
        counted = {"num_cached_tokens_in_full": self._cached_in_full}
        return {"cost_usd": self.spent, "attempt_cost_usd": attempt, **counted, "prices": self.source}


def _dollars(nano: int | None) -> float | None:
    return None if nano is None else nano / _NANO
