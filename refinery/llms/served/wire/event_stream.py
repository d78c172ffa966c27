"""Replies of servers that stream without being asked to: a complete stream is read like any other reply."""

import json
import re
from typing import Any

from refinery.llms.served.wire.lenient_json import ProviderError, provider_error

_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_END = "[DONE]"
_LINE_END = re.compile(r"\r\n|\n|\r")  # the format's only line ends; a text may contain others


class EventStream(list[Any]):
    """The JSON of a stream's events in order. `ended` says whether the server marked its end."""

    ended = False

    def fault(self) -> ProviderError | None:
        """The first error among the events, if there is one."""
        return next((fault for event in self if (fault := provider_error(event))), None)


def read_events(content: bytes) -> EventStream | None:
    """The events of a response in the form of server-sent events, or None for any other form."""
    if not content.lstrip()[:8].startswith(_STARTS):
        return None
    events = EventStream()
    for line in _LINE_END.split(content.decode(errors="replace")):
        name, _, data = line.partition(":")
        if name != "data" or not (data := data.strip()):
            continue
        if data == _END:
            events.ended = True
            continue
        try:
            events.append(json.loads(data))
        except (ValueError, RecursionError):
            return None
    return events
