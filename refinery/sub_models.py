"""The contract of RA-ISF's three sub-models: their prompts, labels and reply format, shared by training and inference."""

import json
import re
from collections.abc import Sequence

from refinery.prompts.render import render_prompt
from refinery.records import Passage

# Labels as the released data writes them (ra-isf README), with the space that sets them off from "Answer:".
KNOW, UNKNOW = " know", " unknow"
RELEVANT, IRRELEVANT = " relevant", " irrelevant"


def knowledge_prompt(question: str) -> str:
    """What M_know reads; it answers KNOW or UNKNOW."""
    return render_prompt("self_knowledge", question=question)


def relevance_prompt(question: str, passage: Passage) -> str:
    """What M_rel reads; it answers RELEVANT or IRRELEVANT."""
    return render_prompt("relevance", question=question, passage=passage)


def decomposition_prompt(question: str) -> str:
    """What M_decom reads; it answers with `render_sub_questions`' text."""
    return render_prompt("decomposition", question=question)


def render_sub_questions(sub_questions: Sequence[str]) -> str:
    """A numbered list, one sub-question a line."""
    return "".join(f"\n{number}. {text}" for number, text in enumerate(sub_questions, 1))


def parse_sub_questions(text: str) -> list[str]:
    """The sub-questions of a numbered list, or of the released data's `{"query": [...]}`; empty where there are none."""
    try:
        listed = json.loads(text)["query"]
        return [item.strip() for item in listed if isinstance(item, str) and item.strip()]
    except (ValueError, TypeError, KeyError):
        return [item.strip() for item in re.findall(r"^\s*\d+[.)]\s*(\S.*)$", text, flags=re.MULTILINE)]


def fill_references(sub_question: str, answers: Sequence[str]) -> str:
    """Put earlier answers where a sub-question refers to them: `#1` is the first (MuSiQue's notation)."""
    return re.sub(r"#(\d+)", lambda m: answers[int(m[1]) - 1] if 0 < int(m[1]) <= len(answers) else m[0], sub_question)
