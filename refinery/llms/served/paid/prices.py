"""What a served model costs: its price, and what calls of unknown length will probably cost and take."""

from decimal import Decimal
from functools import partial
from importlib.metadata import version

from refinery.llms.served.endpoint import EndpointConfig, Price
from refinery.llms.served.protocols.base import protocol_of
from refinery.llms.served.transport.proxies import is_this_machine
from refinery.runtime.forecast import Range

# Tokens of a prompt without and with worked examples, of a passage in it, and of a reply; seconds that an endpoint takes to reply.
_PROMPT, _PASSAGE, _REPLY, _REPLY_SECONDS = (150, 700), (60, 250), (8, 150), (0.5, 8.0)
_PER_MILLION = 1e-6
EXAMPLE_TOKENS = _PROMPT[0] + _REPLY[0], _PROMPT[1] + _REPLY[1]  # of a prompt with its reply


def known_price(config: EndpointConfig) -> tuple[Price | None, str | None]:
    """The model's price and its source; (None, None) if it is unknown. It is never guessed, and an unknown price is never 0."""
    if config.price:
        return config.price, "recipe"
    if (address := config.base_urls[0]) and is_this_machine(address):  # the table has no prices of such servers, and takes time to load
        return None, None
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None, None
    try:
        price = partial(calc_price, provider_api_url=address) if address else partial(calc_price, provider_id=protocol_of(config).provider)
        thousand = [price(usage, config.model).total_price for usage in (Usage(input_tokens=1000), Usage(output_tokens=1000))]
    except LookupError:
        return None, None
    return Price(
        prompt=float(thousand[0] * Decimal(1000)), completion=float(thousand[1] * Decimal(1000))
    ), f"genai-prices {version('genai-prices')}"


def probable_dollars(config: EndpointConfig, calls: Range, *, passages: int, max_tokens: int, examples: Range = (0, 0)) -> Range | None:
    """What so many calls cost, each with up to so many passages in its prompt and tokens in its reply; None without a known price.

    `examples` are the tokens of what is shown before each prompt.
    """
    price, _ = known_price(config)
    if price is None:
        return None
    prompt = _PROMPT[0] + min(1, passages) * _PASSAGE[0] + examples[0], _PROMPT[1] + passages * _PASSAGE[1] + examples[1]
    reply = _REPLY[0], min(_REPLY[1], max_tokens) + config.reasoning_tokens
    low, high = (
        count * (read * price.prompt + written * price.completion) * _PER_MILLION
        for count, read, written in zip(calls, prompt, reply, strict=True)
    )
    return low, high


def probable_seconds(config: EndpointConfig, calls: Range) -> Range:
    """How long so many calls take, if the endpoint answers as many at once as it is sent."""
    low, high = (count * each / config.calls_in_flight for count, each in zip(calls, _REPLY_SECONDS, strict=True))
    return low, high
