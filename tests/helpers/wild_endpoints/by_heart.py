"""Models that answer from memory where searches are asked for, and what models write where passages are to be judged."""

from typing import Any

from helpers.documents import PROJECT
from helpers.scripted_server import Answer, chat_reply
from helpers.wild_endpoints.table import WildEndpoint, always

PASSAGES = {"name": "bm25", "passages": str(PROJECT / "recipes" / "stand_in" / "data" / "web.jsonl")}
ANSWERS = (200, chat_reply('{"action": "answer", "text": "Kelen Griston"}'))
SEARCHES = (200, chat_reply('{"action": "rewrite", "text": "director of Secret Theatre"}'))


def stepwise(**options: Any) -> dict[str, Any]:
    """A recipe for trajectories of searches that the teacher chooses."""
    return {"task": "refinement", "options": {"kind": "stepwise", "keep_wrong_answers": True} | options, "retriever": PASSAGES}


def searches_when_told(body: dict[str, Any]) -> Answer:
    """Answers by heart, unless the prompt says that it must search first."""
    return SEARCHES if "Do not answer yet" in body["messages"][0]["content"] else ANSWERS


BY_HEART = [
    WildEndpoint("a model that knows every answer by heart", lambda body: ANSWERS, recipe=stepwise()),
    WildEndpoint("a model that searches because it must", searches_when_told, paid=8, recipe=stepwise(min_searches=1)),
    WildEndpoint(
        "a model that answers by heart although it must search",
        lambda body: ANSWERS,
        kept=0,
        paid=8,  # with a correction turn each
        recipe=stepwise(min_searches=1),
        rejected={"answered_too_early": 4},
        says=("do not answer yet, but choose a search",),
    ),
    WildEndpoint(
        "a model that gives up",
        always('{"action": "give_up", "text": "The director is not named."}'),
        kept=0,
        recipe=stepwise(),
        rejected={"gave_up": 4},
        says=("The director is not named.",),
    ),
    WildEndpoint(
        "a rationale before the label",
        always('{"rationale": "It names the director.", "relevant": [1]}'),
        kept=20,  # five passages each
        recipe={"task": "relevance", "options": {"rationale": True}, "retriever": PASSAGES},
    ),
    WildEndpoint(
        "a number for no passage at all (SmolLM2 held to a schema)",
        always('{"relevant": [-1]}'),
        kept=20,
        recipe={"task": "relevance", "retriever": PASSAGES},
    ),
    WildEndpoint(
        "a number of a passage that was not shown",
        always('{"relevant": [1, 9]}'),
        kept=0,
        recipe={"task": "relevance", "retriever": PASSAGES},
        rejected={"malformed": 4},
        says=("the teacher named passages [1, 9] of 5",),
    ),
]
