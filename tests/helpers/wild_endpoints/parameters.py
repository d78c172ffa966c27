"""Models that refuse a parameter, need one, or spend their tokens on reasoning."""

from collections.abc import Callable
from typing import Any

from helpers.scripted_server import Answer, chat_reply
from helpers.wild_endpoints.table import GOOD, LABEL, OK, WildEndpoint, always, at_question, message, refuses, stops

GPT5_TEMPERATURE = refuses(
    400,
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.",
    param="temperature",
    code="unsupported_value",
)
MAX_TOKENS = refuses(
    400,
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)
THOUGHT = {"prompt_tokens": 9, "completion_tokens": 70, "completion_tokens_details": {"reasoning_tokens": 60}}


def without(**refusals: Answer) -> Callable[[dict[str, Any]], Answer]:
    """Refuses the first of these parameters that a request has."""
    return lambda body: next((refusal for name, refusal in refusals.items() if name in body), OK)


def wants(**values: Any) -> Callable[[dict[str, Any]], Answer]:
    """Labels only a request with these values."""
    return lambda body: OK if values.items() <= body.items() else refuses(400, f"wants {values}")


def thinks(least: int) -> Callable[[dict[str, Any]], Answer]:
    """Thinks for this many tokens before its reply."""
    cut = chat_reply("", choices=[{"message": {"content": "", "reasoning_content": "Hm"}, "finish_reason": "length"}])
    return lambda body: (200, cut if body["max_tokens"] <= least else GOOD)


PARAMETERS = [
    WildEndpoint(
        "temperature is refused (gpt-5, o-series)",
        without(temperature=GPT5_TEMPERATURE),
        sent=5,
        says=("refuses `temperature`; requests leave it out",),
    ),
    WildEndpoint(
        "temperature is deprecated (Claude Opus 4.7)",
        without(temperature=refuses(400, "`temperature` is deprecated for this model.")),
        sent=5,
        says=("refuses `temperature`; requests leave it out",),
    ),
    WildEndpoint(
        "temperature beside top_p is refused (Claude 4.5)",
        lambda body: (
            refuses(400, "`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
            if {"temperature", "top_p"} <= body.keys()
            else OK
        ),
        sent=5,
        teacher={"top_p": 0.9},
        says=("refuses `temperature`; requests leave it out",),
    ),
    WildEndpoint(
        "max_tokens is refused (gpt-5, o-series)",
        without(max_tokens=MAX_TOKENS),
        sent=5,
        says=("refuses `max_tokens`; `max_completion_tokens` is sent instead",),
    ),
    WildEndpoint(
        "max_tokens and temperature are refused, one after the other",
        without(max_tokens=MAX_TOKENS, temperature=GPT5_TEMPERATURE),
        sent=6,
    ),
    WildEndpoint(
        "max_completion_tokens is refused (strict and older servers)",
        without(
            max_completion_tokens=(422, {"detail": [{"loc": ["body", "max_completion_tokens"], "msg": "Extra inputs are not permitted"}]})
        ),
        sent=5,
        teacher={"max_tokens_name": "max_completion_tokens"},
        says=("refuses `max_completion_tokens`; `max_tokens` is sent instead",),
    ),
    WildEndpoint(
        "many calls find out at once that temperature is refused",
        without(temperature=GPT5_TEMPERATURE),
        teacher={"calls_in_flight": 4},
        recipe={"rows_in_flight": 4},
    ),
    stops(
        "a temperature out of range is an error",
        lambda body: refuses(400, "temperature: Input should be less than or equal to 1"),
        teacher={"temperature": 1.5},
        says=("temperature: Input should be less than or equal to 1",),
    ),
    stops(
        "a chosen top_p is not dropped",
        without(top_p=refuses(400, "Unsupported parameter: 'top_p' is not supported with this model.")),
        teacher={"top_p": 0.9},
        says=("'top_p' is not supported with this model",),
    ),
    WildEndpoint(
        "reasoning effort, top_p and a seed are asked for",
        wants(reasoning_effort="low", top_p=0.9, seed=7),
        teacher={"reasoning_effort": "low", "top_p": 0.9, "seed": 7},
    ),
    WildEndpoint(
        "thinking is switched off in the chat template (Qwen3 on vLLM, SGLang)",
        wants(chat_template_kwargs={"enable_thinking": False, "thinking": False}),
        teacher={"enable_thinking": False},
    ),
    WildEndpoint("a server's own key", wants(top_k=20, min_p=0.0), teacher={"extra_body": {"top_k": 20, "min_p": 0.0}}),
    WildEndpoint(
        "all tokens went into reasoning",
        thinks(2000),
        kept=0,
        rejected={"only_reasoning": 4},
        says=("all 500 tokens went into reasoning before a reply; set teacher.reasoning_tokens, such as 4000",),
    ),
    WildEndpoint("room for reasoning", thinks(2000), teacher={"reasoning_tokens": 4000}),
    WildEndpoint(
        "a reply that is cut",
        at_question(0, (200, chat_reply(choices=[{"message": {"content": LABEL[:20]}, "finish_reason": "length"}]))),
        kept=3,
        rejected={"truncated": 1},
        says=("the reply was cut at 500 tokens; raise teacher.max_tokens",),
    ),
    WildEndpoint(
        "reasoning tokens are counted (OpenAI, DeepSeek)",
        message(content=LABEL, usage=THOUGHT),
        metrics={"num_completion_tokens": 280, "num_reasoning_tokens": 240},
    ),
    WildEndpoint(
        "reasoning tokens are in the total alone (Gemini, Grok)",
        always(LABEL, usage={"prompt_tokens": 9, "completion_tokens": 10, "total_tokens": 79}),
        metrics={"num_completion_tokens": 280, "num_reasoning_tokens": 240},
    ),
]
