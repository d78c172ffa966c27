"""Parameters that an endpoint's model refuses: found out from its errors, remembered for the run, and then left out or renamed.

Only a parameter that a request can do without is left out: `temperature`, because it is always sent, `stop`, because a reply is cut
where it is read, and `tool_choice`, because a call where none is left is found there too. A key that the recipe sets on purpose, such as
`top_p`, is never dropped.
"""

import logging
import re
from collections.abc import Collection
from typing import Any

logger = logging.getLogger(__name__)

_READ_FOR_WORDS = 4_000
_STATUSES = (400, 422)
# OpenAI, Anthropic, Moonshot and strict servers, which each say it in their own words.
_REFUSED = re.compile(
    r"unsupported|not support|n't support|deprecated|not permitted|not allowed|unrecogni[sz]ed|unknown|unexpected"
    r"|only the default|only 1(?:\.0)? is allowed|only be set to 1|cannot both be"
)
_NAMED = {
    "temperature": re.compile(r"\btemperature\b"),
    "stop": re.compile(r"[\"'`\\]stop[\"'`\\]"),
    "tool_choice": re.compile(r"\btool_choice\b"),
    "max_tokens": re.compile(r"\bmax_tokens\b"),
    "max_completion_tokens": re.compile(r"\bmax_completion_tokens\b"),
}
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class RefusedParameters:
    """What one server's model refuses. `where` is how the log names it."""

    def __init__(self, where: str) -> None:
        self._where, self._refused = where, dict[str, str | None]()

    def fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without refused parameters, or with their other names."""
        if not self._refused:
            return body
        names = {name: self._refused.get(name, name) for name in body}
        return {new: body[name] for name, new in names.items() if new is not None}

    def learn(self, status: int, content: bytes, sent: Collection[str]) -> bool:
        """Whether an error refuses one of the `sent` parameters, so that the request may be sent again without it."""
        if status not in _STATUSES or (name := _refused(content, sent)) is None or _OTHER_NAME.get(name) in self._refused:
            return False
        if name not in self._refused:
            self._refused[name] = new = _OTHER_NAME.get(name)
            logger.warning("%s refuses `%s`; %s.", self._where, name, f"`{new}` is sent instead" if new else "requests leave it out")
        return True


def _refused(content: bytes, sent: Collection[str]) -> str | None:
    """The parameter that an error refuses. One that is named first is meant, such as `max_tokens` in `use 'max_completion_tokens'`."""
    said = content[:_READ_FOR_WORDS].decode(errors="replace").lower()
    if not _REFUSED.search(said):
        return None
    places = {name: found.start() for name, words in _NAMED.items() if name in sent and (found := words.search(said))}
    return min(places, key=lambda name: places[name], default=None)
