"""Commands that run a pushed model, ready to paste in an empty folder."""

from collections.abc import Iterable

from refinery.reporting.markdown import code_block
from refinery.tasks.base import Card

_SETUP = """\
pip install rag-refinery
printf '%s\\n' '{"id": "p1", "title": "Lyon", "text": "Lyon is a city in France."}' > passages.jsonl
printf '%s\\n' '{"id": "q1", "text": "Which country is Lyon in?", "answers": ["France"]}' > questions.jsonl
cat > loop.yaml <<'END'"""
_LOOP = """\
questions: [questions.jsonl]
output_dir: runs/loop
retriever: {{passages: passages.jsonl}}
passages_per_query: {passages}
max_new_tokens: 32
END
refinery infer loop.yaml
refinery view runs/loop"""
_ALONE = """\
pip install rag-refinery
python - <<'END'
import asyncio
from refinery.llms.build import ModelConfig, build_llm
from refinery.contract.records import Passage, Step, Trajectory

llm = build_llm(ModelConfig(base="{repository}"))
{program}
END"""


def use_lines(card: Card, repository: str) -> Iterable[str]:
    """How to run the model alone on one question, then its loop on your own question and passage, where its task has them."""
    if card.program:
        yield "The model alone:"
        yield ""
        yield from _bash(_ALONE.replace("{program}", card.program), repository)
    if card.loop_is:
        yield card.loop_is
        yield ""
    if card.loop:
        yield from _bash(f"{_SETUP}\n{card.loop}\n{_LOOP.format(passages=card.passages)}", repository)
    if card.note:
        yield card.note.replace("{repository}", repository)
        yield ""


def _bash(text: str, repository: str) -> list[str]:
    return code_block(text.replace("{repository}", repository), "bash")
