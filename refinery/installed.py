"""How Refinery is installed, and so how one of its extras is."""

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit

_NAME = "rag-refinery"


@cache
def install_extra(name: str) -> str:
    """The command that adds an extra: `pip install "rag-refinery[serve]"`, or that of the checkout or wheel which is installed."""
    origin = _origin()
    if "dir_info" in origin:
        checkout = unquote(urlsplit(origin["url"]).path)
        return f"pip install -e {quote(f'{checkout}[{name}]')}"
    if url := origin.get("url"):
        return f"pip install {quote(f'{_NAME}[{name}] @ {url}')}"
    return f'pip install "{_NAME}[{name}]"'


def _origin() -> dict[str, Any]:
    """What pip recorded of an installation that is not from an index, in `direct_url.json` (PEP 610)."""
    try:
        recorded = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:  # a checkout on the module path
        return {"dir_info": {}, "url": Path(__file__).parents[1].as_uri()}
    return json.loads(recorded) if recorded else {}
