"""Money: what a reply cost, and a hard cap that holds because the worst case is reserved before a request is sent."""

import asyncio
from decimal import Decimal
from importlib.metadata import version
from typing import Any

from refinery.errors import LLMError, RecipeError
from refinery.llms.endpoint import ChatRequest, EndpointConfig, Price, Reply

_PER_MILLION = 1e-6


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
        where = {"provider_api_url": config.base_urls[0]} if config.base_urls[0] else {"provider_id": "openai"}
        thousand = [calc_price(usage, config.model, **where).total_price for usage in (Usage(input_tokens=1000), Usage(output_tokens=1000))]
    except LookupError:
        return None, None
    return Price(
        prompt=float(thousand[0] * Decimal(1000)), completion=float(thousand[1] * Decimal(1000))
    ), f"genai-prices {version('genai-prices')}"


class Budget:
    """What has been spent, and what requests in flight may still cost. `spent` is None while the price is unknown.

    `factor` is what the transport makes of the price (batch jobs: half).
    """

    def __init__(self, config: EndpointConfig, cap_usd: float | None, *, factor: float = 1.0) -> None:
        self.config, self.cap, self._factor = config, cap_usd, factor
        self.price, self.source = known_price(config)
        if cap_usd is not None and self.price is None:
            raise RecipeError(
                f"max_cost_usd: nobody knows what '{config.model}' costs. Set teacher.price, or install the extra `prices`: pip install "
                "'rag-refinery[prices]'."
            )
        self.spent: float | None = None if self.price is None else 0.0
        self._reserved = 0.0
        self._settled = asyncio.Event()

    def cost(self, reply: Reply) -> float | None:
        """What one reply cost, in US dollars."""
        return self._dollars(reply.num_prompt_tokens, reply.num_completion_tokens)

    async def reserve(self, request: ChatRequest) -> float:
        """Set aside what the request can cost at most. Raises BudgetExhausted when that does not fit and nothing is left to settle."""
        worst = self.worst(request)
        while self.cap is not None and (self.spent or 0.0) + self._reserved + worst > self.cap:
            if self._reserved <= 0:
                raise BudgetExhausted(
                    f"max_cost_usd {self.cap}: {self.spent:.4f} is spent, and the next request may cost {worst:.4f}. Raise it and --resume."
                )
            self._settled.clear()
            await self._settled.wait()
        self._reserved += worst
        return worst

    def worst(self, request: ChatRequest) -> float:
        """The most that one try can cost; 0 where the price is unknown."""
        return 0.0 if self.price is None else self._dollars(request.most_prompt_tokens(), self.config.max_tokens) or 0.0

    def settle(self, reserved: float, reply: Reply | None, unseen_tries: int) -> None:
        """Replace a reservation by what was used. A try whose answer never came may be charged: it counts as its worst case."""
        self._reserved = max(0.0, self._reserved - reserved)
        if self.spent is not None:
            self.spent += (self.cost(reply) or 0.0 if reply else 0.0) + unseen_tries * reserved
        self._settled.set()

    def _dollars(self, num_prompt_tokens: int, num_completion_tokens: int) -> float | None:
        if self.price is None:
            return None
        return (num_prompt_tokens * self.price.prompt + num_completion_tokens * self.price.completion) * _PER_MILLION * self._factor

    def summary(self) -> dict[str, Any]:
        """For `metrics.json`: dollars paid by this run (null: unknown) and whose prices these are."""
        return {"cost_usd": None if self.spent is None else round(self.spent, 6), "prices": self.source}
