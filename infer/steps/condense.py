"""Let the model condense a passage before it is read: SUMM and SNIPPET of ALCE (Gao et al., 2023), which MIGRES Table 5 also tries."""

import asyncio
import re
from collections.abc import Sequence
from typing import Literal

from infer.session import Session
from infer.steps.reasoning import reason
from refinery.contract.records import Passage
from refinery.prompts.render import render_prompt
from refinery.retrievers.base import Hit

Style = Literal["summ", "snippet"]
_IRRELEVANT = re.compile(r"\W*irrelevant\b\W*", re.IGNORECASE)


async def condense(
    style: Style, question: str, passages: Sequence[Passage], session: Session, *, depth: int = 0, max_new_tokens: int
) -> list[Passage]:
    """The passages with their condensed texts, from one call each; a text is empty if the model calls it irrelevant or writes nothing."""

    async def one(passage: Passage) -> Passage:
        prompt = render_prompt(f"condense_{style}", question=question, passage=passage)
        said = await reason(style, prompt, question, session, depth=depth, max_new_tokens=max_new_tokens)
        return passage.model_copy(update={"text": "" if _IRRELEVANT.fullmatch(said) else said})

    shorter = list(await asyncio.gather(*map(one, passages)))
    left = [Hit(passage, 1 / position) for position, passage in enumerate(shorter, 1) if passage.text]
    session.record("condensed", question, depth=depth, passages=left)
    return shorter
