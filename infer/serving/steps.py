"""Say what a decoder does while it works: each step of its trace as one line of a Markdown list."""

from refinery.contract.trace import TraceStep
from refinery.reporting.markdown import escaped

_MOST_CHARACTERS = 300
_MOST_TITLES = 5
_INDENT = "  "
_DID = {
    "condense": "Reworded the question as",
    "rewrite": "Rewrote the query as",
    "decompose": "Broke the question down into",
    "disambiguate": "Read the question as",
    "self_knowledge": "Asked itself whether it knows the answer",
    "relevance": "Judged the passage",
    "unresolved": "Could not resolve the question",
}


def step_line(step: TraceStep) -> str:
    """The step as an item of a list, which is indented by the step's depth. Text from outside is shown literally."""
    about = f" ({_shown(step.question)})" if step.depth and step.name != "retrieve" else ""
    return f"{_INDENT * step.depth}- {_searched(step) if step.name == 'retrieve' else _did(step, about)}\n"


def _searched(step: TraceStep) -> str:
    titles = [escaped(passage.title or passage.id) for passage in step.passages or []]
    more = f" and {len(titles) - _MOST_TITLES} more" if len(titles) > _MOST_TITLES else ""
    return f'Searched for "{_shown(step.question)}": {"; ".join(titles[:_MOST_TITLES]) or "found nothing"}{more}'


def _did(step: TraceStep, about: str) -> str:
    name = _DID.get(step.name) or escaped(step.name.replace("_", " ").capitalize())
    said = [_shown(step.text)] if step.text else []
    if step.probabilities:
        label = max(step.probabilities, key=step.probabilities.__getitem__)
        said.append(f"{escaped(label)} ({step.probabilities[label]:.0%})")
    if step.reasoning:
        said.append(f"thought: {_shown(step.reasoning)}")
    return f"{name}{about}{': ' if said else ''}{', '.join(said)}"


def _shown(text: str) -> str:
    text = "; ".join(line.strip() for line in text.splitlines() if line.strip())
    return escaped(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")
