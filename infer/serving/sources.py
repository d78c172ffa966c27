"""List the passages that were read under an answer, and take such a list off again when the answer comes back with the next question."""

from infer.evaluation.efficiency import passages_read
from refinery.contract.records import Passage
from refinery.contract.trace import Prediction
from refinery.reporting.markdown import escaped

_HEADING = "\n\n**Sources**\n\n"


def sources(prediction: Prediction) -> str:
    """A numbered list in Markdown, in which text of passages is shown literally; empty if no passage was read."""
    read = {passage.id: passage for passage in passages_read(prediction)}
    lines = [f"{number}. {_named(passage)}" for number, passage in enumerate(read.values(), 1)]
    return _HEADING + "\n".join(lines) if lines else ""


def without_sources(said: str) -> str:
    """A reply as the decoder gave it."""
    answer, heading, listed = said.rpartition(_HEADING.rstrip())
    is_list = all(line.lstrip().partition(". ")[0].isdecimal() for line in listed.splitlines() if line.strip())
    return answer.rstrip() if heading and is_list else said


def _named(passage: Passage) -> str:
    title, passage_id = escaped(passage.title), escaped(passage.id)
    return f"{title} ({passage_id})" if title not in ("", passage_id) else passage_id
