"""Searches for supporting passages by their titles, where a dataset annotates these passages but no sub-questions (HotpotQA).

A search for the whole question often finds the first of two supporting passages only. What names the second is then in the question (a
comparison) or in the passage that was found (a bridge), so a searcher can write it; a title that neither names is not searched for, and
the row misses its support.
"""

import re
from collections.abc import Sequence

from distill.steps.refinement.row import Row
from refinery.contract.records import Passage, Question, Step


async def searches_of_whole(row: Row) -> list[Step]:
    """A search for the question, and for the title of each supporting passage that it misses; or for each of the things it compares."""
    question, steps = row.question, [await row.search("rewrite", row.question.text)]
    titles = _supporting_titles(question)
    if _missed(question, steps) and len(titles) > 1 and all(_names(question.text, title) for title in titles):
        return await row.searches("decompose", titles)
    while (title := _next_title(question, steps)) and len(steps) < row.context.recipe.max_steps:
        steps.append(await row.search("decompose", title))
    return steps


def _next_title(question: Question, steps: Sequence[Step]) -> str | None:
    """The title of a missed passage that the question or a supporting passage found so far names, and that was not searched for yet."""
    read = [passage.text for step in steps for passage in step.passages if passage.id in (question.supporting or ())]
    titles, asked = [_name(passage) for passage in _missed(question, steps)], {step.text for step in steps}
    return next((title for title in titles if title not in asked and any(_names(text, title) for text in [question.text, *read])), None)


def _missed(question: Question, steps: Sequence[Step]) -> list[Passage]:
    found = {passage.id for step in steps for passage in step.passages}
    return [passage for passage in _supporting(question) if passage.id not in found]


def _supporting_titles(question: Question) -> list[str]:
    return list(dict.fromkeys(_name(passage) for passage in _supporting(question)))


def _supporting(question: Question) -> list[Passage]:
    return [passage for passage in question.passages or [] if passage.id in (question.supporting or ())]


def _name(passage: Passage) -> str:
    """The title as texts write it, without what tells it apart from its namesakes, such as `(1945 film)`."""
    return re.sub(r"\s*\([^()]*\)\s*$", "", passage.title).strip()


def _names(text: str, title: str) -> bool:
    return bool(title) and re.search(rf"(?<!\w){re.escape(title)}(?!\w)", text, flags=re.IGNORECASE) is not None
