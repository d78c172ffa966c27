"""Several models behind one server, of which a run uses more than one."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

from helpers.scripted_server import Answer, chat_reply
from helpers.wild_endpoints.table import OK, WildEndpoint, at_question, refuses

SECOND = {"fallbacks": [{"base_url": "{url}/v1", "model": "second"}]}
STRONG = {"escalate": {"teacher": {"base_url": "{url}/v1", "model": "strong"}}}
JUDGE = {"judge": {"base_url": "{url}/v1", "model": "judge"}}
RIGHT = (200, chat_reply('{"reason": "", "wrong": []}'))
OTHER = (200, chat_reply('{"sub_questions": ["Which film?", "Who made #1?"]}'))
SAMPLES = {"samples": 3}
WARM = {"temperature": 0.7}


def by_model(
    answer: Callable[[dict[str, Any]], Answer], **others: Callable[[dict[str, Any]], Answer]
) -> Callable[[dict[str, Any]], Answer]:
    """Answers as the model that a request names."""
    return lambda body: others.get(body["model"], answer)(body)


def in_circles(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    """Gives the answers one after the other, again and again."""
    given = cycle(answers)
    return lambda body: next(given)


def fine(body: dict[str, Any]) -> Answer:
    """A good reply to each request."""
    return OK


SEVERAL = [
    WildEndpoint(
        "the first model filters a prompt, the second answers",
        by_model(at_question(0, refuses(400, "The response was filtered", code="content_filter")), second=fine),
        sent=5,
        recipe=SECOND,
        metrics={"calls": 4},
    ),
    WildEndpoint(
        "the first model's credit ends, the second goes on",
        by_model(lambda body: refuses(402, "Insufficient credits"), second=fine),
        sent=5,
        recipe=SECOND,
        says=("The run continues with fallback_1 ('second').",),
    ),
    WildEndpoint(
        "the first model refuses in words, and so does the second",
        by_model(at_question(1, (200, chat_reply("I'm sorry, I can't help with that.")))),
        kept=3,
        paid=5,
        recipe=SECOND,
        rejected={"refused": 1},
        says=("(reasons of the teachers, in order: refused, refused)",),
    ),
    WildEndpoint(
        "a cheap model writes no JSON, the strong one does",
        by_model(at_question(2, (200, chat_reply("It is a film."))), strong=fine),
        paid=6,  # with a correction turn
        recipe=STRONG,
    ),
    WildEndpoint(
        "a judge that finds a row wrong",
        by_model(fine, judge=at_question(3, (200, chat_reply('{"reason": "It is vague.", "wrong": [1]}')), RIGHT)),
        kept=3,
        paid=8,
        recipe=JUDGE,
        rejected={"judged_bad": 1},
        says=("the judge 'judge': It is vague.",),
    ),
    WildEndpoint(
        "a judge that writes no verdict",
        by_model(fine, judge=lambda body: (200, chat_reply("Looks good to me!"))),
        kept=0,
        paid=12,
        recipe=JUDGE,
        rejected={"malformed": 4},
        says=("the judge: there is no JSON object in it",),
    ),
    WildEndpoint(
        "a model that says two things of three samples, by majority", in_circles(OK, OTHER, OK), paid=12, recipe=SAMPLES, teacher=WARM
    ),
    WildEndpoint(
        "a model that writes no JSON in one of three samples",
        in_circles(OK, (200, chat_reply("Well.")), OK, (200, chat_reply("Well."))),  # with a correction turn
        paid=16,
        recipe=SAMPLES,
        teacher=WARM,
    ),
    WildEndpoint(
        "a judge that prefers one of two results",
        by_model(in_circles(OK, OTHER, OK), judge=lambda body: (200, chat_reply('{"reason": "It is clear.", "best": 2, "wrong": []}'))),
        paid=20,  # three samples, the choice and the check of each
        recipe=SAMPLES | JUDGE | {"best_of": "judge"},
        teacher=WARM,
    ),
    WildEndpoint(
        "samples that disagree go to the strong model",
        by_model(in_circles(OK, OTHER, (200, chat_reply('{"sub_questions": ["Who?"]}'))), strong=fine),
        paid=16,
        recipe=SAMPLES | {"escalate": STRONG["escalate"] | {"min_agreement": 0.6}},
        teacher=WARM,
    ),
]
