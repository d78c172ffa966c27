"""Money: what a reply cost, and a hard cap that holds because the worst case is reserved, and on disk, before a request is sent.

Counted in whole billionths of a dollar, every amount rounded up: reservations that are settled come to exactly 0, as sums of floats do
not.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from importlib.metadata import version
from typing import Any

from distill.stores.base import ReplyStore
from refinery.errors import LLMError, RecipeError
from refinery.llms.served.chat_request import ChatRequest
from refinery.llms.served.endpoint import EndpointConfig, Price, Reply
from refinery.llms.served.protocols.base import protocol_of

_NANO = 10**9  # of a dollar
_NANO_PER_TOKEN = 1000  # of a price of one dollar per million tokens


class BudgetExhausted(LLMError):
    """The next request might pass `max_cost_usd`; nothing was sent."""


def known_price(config: EndpointConfig) -> tuple[Price | None, str | None]:
    """The model's price and where it is from; (None, None) where nobody knows it. Never a guess, never 0 for unknown."""
    if config.price:
        return config.price, "recipe"
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None, None
    try:
        address = config.base_urls[0]
        price = partial(calc_price, provider_api_url=address) if address else partial(calc_price, provider_id=protocol_of(config).provider)
        thousand = [price(usage, config.model).total_price for usage in (Usage(input_tokens=1000), Usage(output_tokens=1000))]
    except LookupError:
        return None, None
    return Price(
        prompt=float(thousand[0] * Decimal(1000)), completion=float(thousand[1] * Decimal(1000))
    ), f"genai-prices {version('genai-prices')}"


class Spending:
    """What a job has spent in all its attempts, in billionths of a dollar by endpoint (None: some of it at an unknown price).

    Kept in the job's store before a request is sent, with the worst case of what is then on its way: that is what a killed attempt has
    paid at most, so a cap holds over attempts. Shared by all endpoints of the job; without a store it is of this attempt alone.
    """

    def __init__(self, store: ReplyStore | None = None, job: str = "") -> None:
        self._store, self._job = store, job
        earlier = store.costs(job) if store else {}
        self.spent: dict[str, int | None] = earlier or {}
        self._kept, self._unknown = earlier, earlier is None
        self.reserved: Counter[str] = Counter()
        self.on_its_way: Counter[str] = Counter()  # of what is reserved, the part that a kill would leave paid and unknown
        self.settled = asyncio.Event()

    @property
    def committed(self) -> int:
        """Spent, or reserved for requests in flight."""
        return sum(nano or 0 for nano in self.spent.values()) + self.reserved.total()

    def enter(self, endpoint: str) -> None:
        """One more endpoint of the job."""
        self.spent.setdefault(endpoint, None if self._unknown else 0)

    def keep(self) -> asyncio.Future[None] | None:
        """Have it on disk with all else that this turn of the event loop brings; None where it is there."""
        at_most = {name: None if nano is None else nano + self.on_its_way[name] for name, nano in self.spent.items()}
        if self._store is None or at_most == self._kept:
            return None
        self._kept = at_most
        return self._store.put_costs(self._job, at_most)


@dataclass(slots=True)
class Reservation:
    """The worst case of one try of the request under `key`, in billionths of a dollar, and what has become of it.

    `held` while it is set aside, `unseen_tries` of those before it, which are paid for, `answered` once a reply is entered.
    """

    key: bytes
    worst: int
    held: bool = False
    unseen_tries: int = 0
    answered: bool = False


class Budget:
    """What one endpoint's requests cost and may cost.

    `factor` is what the transport makes of the price (batch jobs: half). `lost_if_killed` is how many requests a kill leaves paid and
    unanswered at most: those that are open at once, or none where the next attempt collects them (batch jobs).
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
        price = self.price or Price(prompt=0, completion=0)
        self._per_token = [Decimal(str(part)) * _NANO_PER_TOKEN * Decimal(str(factor)) for part in (price.prompt, price.completion)]
        self._lost_if_killed = config.calls_in_flight * len(config.base_urls) if lost_if_killed is None else lost_if_killed
        self._largest = self._cut_off = self._attempt = 0
        self._open: dict[bytes, Reservation] = {}
        self.stopped_by: LLMError | None = None  # why nothing more is to be paid

    def _check_cap(self) -> None:
        """Raises RecipeError for a cap that cannot be held."""
        if self.price is None:
            raise RecipeError(
                f"{self.config.where}: max_cost_usd: no price is known for '{self.config.model}'. Set {self.config.key_of('price')}, or "
                "install the extra `prices`: pip install 'rag-refinery[prices]'."
            )
        if None in self._spending.spent.values():
            raise RecipeError(
                f"{self.config.where}: max_cost_usd: earlier attempts of this run paid at unknown prices, so what is left of the cap is "
                "unknown. Name this run's store as `store` and another output_dir: that run pays only for what is new, and all it "
                "pays counts."
            )

    @property
    def spent(self) -> float | None:
        """US dollars of all attempts; None where some of it is unknown."""
        return _dollars(self._spending.spent[self._endpoint])

    def cost(self, reply: Reply, request: ChatRequest) -> float | None:
        """What one reply cost, in US dollars; None where the price is unknown."""
        if self.price is None:
            return None
        counted = self._counted(reply)
        return _dollars(self.worst(request) if counted is None else counted)

    async def reserve(self, request: ChatRequest) -> Reservation:
        """Set aside what the request can cost at most. Raises BudgetExhausted when that does not fit and nothing is left to settle."""
        reservation = Reservation(request.key, self.worst(request))
        await self._hold(reservation)
        self._open[request.key] = reservation
        return reservation

    async def admit(self, request: ChatRequest, unseen_tries: int) -> None:
        """Before each try: a try before it whose answer never came may be charged too. Raises as `reserve`, and when the run stops."""
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
                raise BudgetExhausted(f"max_cost_usd {self.cap}: {left}. Raise it and --resume.")
            spending.settled.clear()
            await spending.settled.wait()
        if self.stopped_by is not None:
            raise self.stopped_by
        self._largest, reservation.held = max(self._largest, worst), True
        self._set_aside(worst)
        self._spend(0)
        if self._lost_if_killed and (kept := spending.keep()) is not None:
            try:
                await kept
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

    def worst(self, request: ChatRequest) -> int:
        """The most that one try can cost, in billionths of a dollar; 0 where the price is unknown."""
        return 0 if self.price is None else self._nano(request.most_prompt_tokens(), self.config.max_tokens)

    def enter(self, key: bytes, reply: Reply) -> None:
        """Enter a reply in the turn in which it is kept, so that both are on disk or neither; it may be of an earlier attempt's job."""
        reservation = self._open.pop(key, None) or Reservation(key, 0)
        counted = self._counted(reply)
        self._spend(reservation.worst if counted is None else counted)
        self._release(reservation)
        reservation.answered = True
        self._spending.keep()

    def settle(self, reservation: Reservation, reply: Reply | None, unseen_tries: int) -> None:
        """Replace a reservation by what was used. A try whose answer never came may be charged: it counts as its worst case."""
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

    def cut_off(self) -> int:
        """How many tries to settle for a request that was cancelled: 1 if it may have been on its way, and not in a queue."""
        self._cut_off += 1
        return int(self._cut_off <= self._lost_if_killed)

    async def close(self) -> None:
        """Keep what was spent in the end."""
        if (kept := self._spending.keep()) is not None:
            await kept

    def _counted(self, reply: Reply) -> int | None:
        """By the tokens that the server counted; None where it counted none (no prompt is empty), and may charge the worst case."""
        if self.price is None:
            return 0
        if reply.num_prompt_tokens <= 0 or (reply.num_completion_tokens <= 0 and reply.text):
            return None
        return self._nano(reply.num_prompt_tokens, reply.num_completion_tokens)

    def _nano(self, num_prompt_tokens: int, num_completion_tokens: int) -> int:
        cost = num_prompt_tokens * self._per_token[0] + num_completion_tokens * self._per_token[1]
        return int(cost.to_integral_value(ROUND_CEILING))

    def summary(self) -> dict[str, Any]:
        """For `metrics.json`: dollars paid in all attempts and in this one (null: unknown), and whose prices these are."""
        attempt = None if self.price is None else _dollars(self._attempt)
        return {"cost_usd": self.spent, "attempt_cost_usd": attempt, "prices": self.source}


def _dollars(nano: int | None) -> float | None:
    return None if nano is None else nano / _NANO
