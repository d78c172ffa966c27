"""A teacher that always gives the same reply: the baseline that the labels of a real teacher have to beat.

    python recipes/real/constant_teacher.py --port 8766

Every passage is relevant, every question is known, nothing is decomposed, a question is its own query, and the answer is the first title
found.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from refinery.demo.teacher.server import ChatServer

_PASSAGES = re.compile(r"^\[(\d+)\]$", re.MULTILINE)
# By a part of the prompt that asks for a reply of this form. The last question of a prompt is the row's, after the examples.
_REPLIES: dict[str, Callable[[str], dict[str, Any]]] = {
    '{"relevant": [': lambda shown: {"relevant": [int(number) for number in _PASSAGES.findall(shown)]},
    '{"label": "relevant"}': lambda shown: {"label": "relevant"},
    '{"answer": "yes"}': lambda shown: {"answer": "yes"},
    '{"sub_questions": [': lambda shown: {"sub_questions": [_line("Question", shown)]},
    '{"queries": [': lambda shown: {"queries": [_line("Question", shown)]},
    '{"answer": "..."}': lambda shown: {"answer": _line("Title", shown)},
}


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python recipes/real/constant_teacher.py", description="Serve the constant teacher on loopback.")
    parser.add_argument("--port", type=int, required=True)
    with ChatServer(reply, port=parser.parse_args(argv).port) as server, suppress(KeyboardInterrupt):
        server.serve_forever()


def reply(prompt: str) -> str:
    """The reply to a prompt of relevance, self_knowledge, decomposition or refinement (multi_hop)."""
    shown = prompt[prompt.rfind("\n\nQuestion: ") :]
    return json.dumps(next(said(shown) for form, said in _REPLIES.items() if form in prompt))


def _line(name: str, shown: str) -> str:
    return next(iter(re.findall(rf"^{name}: (.*)$", shown, re.MULTILINE)), "unknown")


if __name__ == "__main__":
    sys.exit(main())
