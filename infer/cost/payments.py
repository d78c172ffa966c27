"""Pay for the replies of a run's endpoints: each once, from a store that a resumed run reads, and within `max_cost_usd`."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from infer.recipe import InferRecipe
from refinery.errors import RecipeError
from refinery.llms.served.paid.budget import Budget, Spending
from refinery.llms.served.paid.paid_replies import PaidReplies
from refinery.llms.served.paid.served_llm import ServedLLM
from refinery.llms.served.resumed_endpoints import addresses


def may_change(recipe: InferRecipe) -> frozenset[str]:
    """What a resumed run may have changed: neither how much it may spend nor where a model is served changes what is answered."""
    return frozenset({"max_cost_usd"}) | addresses(recipe.served.values())


class Payments:
    """The store of a run and what each of its endpoints has cost; without an endpoint there is neither."""

    def __init__(self, recipe: InferRecipe, endpoints: Mapping[str, ServedLLM], *, num_processes: int = 1) -> None:
        self._recipe, self._open = recipe, ExitStack()
        self.by_role: dict[str, PaidReplies] = {}
        if num_processes > 1 and recipe.max_cost_usd:
            raise _too_many(recipe, num_processes)
        if not endpoints or num_processes > 1:  # a store has one writer
            return
        store = recipe.open_store(recipe.output_dir)
        self._open.callback(store.close)
        try:
            spending = Spending(store, recipe.job_of(recipe.output_dir))
            for role, llm in endpoints.items():
                config = recipe.served[role]
                budget = Budget(config, recipe.max_cost_usd, spending=spending, endpoint=role)
                self.by_role[role] = PaidReplies(config, store, budget)
                llm.pay_through(self.by_role[role])
        except BaseException:
            self._open.close()
            raise

    @property
    def spent_usd(self) -> float | None:
        """US dollars so far; None if nothing is paid for, or a price is unknown."""
        spent = [paid.budget.spent for paid in self.by_role.values()]
        return None if not spent or None in spent else sum(filter(None, spent))

    @property
    def spent(self) -> str:
        """For the progress line: dollars so far, and the cap; empty if they are unknown."""
        if (spent := self.spent_usd) is None:
            return ""
        cap = self._recipe.max_cost_usd
        return f" cost=${spent:,.4f}" + (f" of ${cap:,.2f}" if cap else "")

    @property
    def worth(self) -> float | None:
        """What all replies so far cost when they were paid for, in US dollars; None if a price is unknown."""
        worths = [paid.worth for paid in self.by_role.values()]
        return None if None in worths else sum(filter(None, worths))

    def summary(self, role: str) -> dict[str, Any]:
        """For `metrics.json`: what an endpoint was asked, and what it cost."""
        return self.by_role[role].summary() if role in self.by_role else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _too_many(recipe: InferRecipe, num_processes: int) -> RecipeError:
    return recipe.fault("max_cost_usd", f"cannot be shared by {num_processes} processes. Start one: it keeps an endpoint busy by itself.")
