"""What a run will take, as `refinery infer RECIPE --dry-run` prints it: from the decoder's own arithmetic, and from a pilot."""

from collections.abc import Iterator, Sequence

from infer.cost.forecast import calls_of, dollars_of, texts_of
from infer.cost.pilot import Pilot, read_pilot
from infer.recipe import InferRecipe
from infer.steps.calls import planned
from refinery.contract.records import Question
from refinery.runtime.forecast import Range, extrapolated

_HOUR = 3600


def bill(recipe: InferRecipe, questions: Sequence[Question]) -> Iterator[str]:
    """The lines: calls, tokens and dollars at least and at most, the calls of a question by role, and what a pilot says."""
    calls = calls_of(recipe, conversation=any(question.history for question in questions))
    count = len(questions)
    if calls is None:
        yield f"{count:,} questions. Decoder '{recipe.decoder}' declares no `plan`, so only a pilot can tell what they take."
    else:
        texts = texts_of(recipe, questions)
        plan = planned(calls, texts).times(count)
        yield (
            f"{count:,} questions: {_range(plan.calls)} calls, {_range(plan.read)} tokens read, {_range(plan.written)} written, "
            f"{_dollars(recipe, dollars_of(recipe, calls, texts), count)}."
        )
        for one in calls:
            if one.count[1]:
                yield f"  {one.role}: {_range(one.count)} calls of a question, each of at most {one.writes:,} new tokens"
    yield _by_pilot(recipe, count)


def _by_pilot(recipe: InferRecipe, count: int) -> str:
    pilot = read_pilot(recipe)
    if pilot is None or len(pilot.calls) < 2:
        kept = " Its replies are not paid for twice." if recipe.served else ""
        return f"No estimate yet: add --pilot 20 to answer 20 of them at random.{kept}"
    parts = [
        f"{_range(extrapolated(pilot.calls, count))} calls",
        f"{_range(extrapolated(pilot.read, count))} tokens read",
        f"{_range(extrapolated(pilot.written, count))} written",
        *_money_and_time(recipe, pilot, extrapolated(pilot.tokens, count)),
    ]
    failed = f" {pilot.failed} of them failed." * bool(pilot.failed)
    return f"Estimated from a pilot of {len(pilot.calls)} questions, 95% interval: {', '.join(parts)}.{failed}"


def _money_and_time(recipe: InferRecipe, pilot: Pilot, tokens: Range) -> Iterator[str]:
    """Dollars by the pilot's price of a token, and hours by its tokens a second."""
    seen = max(sum(pilot.tokens), 1)
    if recipe.served and pilot.dollars is None:
        yield f"price unknown ({_no_price(recipe)})"
    elif recipe.served:
        yield _money((pilot.dollars or 0.0) / seen, tokens)
    if pilot.seconds is not None:
        low, high = (amount * pilot.seconds / seen / _HOUR for amount in tokens)
        yield f"{low:,.2f} to {high:,.2f} hours at the pilot's {seen / pilot.seconds:,.0f} tokens a second"


def _dollars(recipe: InferRecipe, each: Range | None, count: int) -> str:
    if not recipe.served:
        return "no dollars, because every model is on this machine"
    return f"price unknown ({_no_price(recipe)})" if each is None else _money(count, each)


def _money(factor: float, amounts: Range) -> str:
    return f"${factor * amounts[0]:,.4f} to ${factor * amounts[1]:,.4f}"


def _no_price(recipe: InferRecipe) -> str:
    return "set " + " and ".join(config.key_of("price") for config in recipe.served.values())


def _range(amounts: Range) -> str:
    low, high = amounts
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
