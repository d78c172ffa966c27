"""An LLM behind an endpoint: its capabilities are determined when it is built, and its replies may cost money."""

from typing import Any, Protocol

from refinery.llms.base import LLM, Need
from refinery.llms.served.paid.paid_replies import PaidReplies


class ServedLLM(LLM, Protocol):
    """A model served by an endpoint."""

    def require(self, decoder: str, needs: frozenset[Need]) -> None:
        """Raise IncapableModelError when the endpoint lacks what the decoder needs."""
        ...

    def record(self) -> dict[str, Any]:
        """The endpoint's capabilities, for the run's record."""
        ...

    def pay_through(self, replies: PaidReplies) -> None:
        """Take replies from a store, and pay within a budget for missing ones."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
