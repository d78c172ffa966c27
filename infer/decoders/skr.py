"""SKR (Wang et al., 2023): a judge of self-knowledge decides whether to retrieve; the answer is then closed-book, or as in RAG.

The `knn` judge lets the nearest labeled questions vote (labels as `refinery distill` writes them for self-knowledge; the paper finds the
neighbors with SimCSE, this code with BM25). The `trained` judge is a trained model, used as in RA-ISF.
"""

from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from infer.decoders.base import NO_NEEDS, READS_LABELS, Decoder
from infer.session import Session
from infer.steps.ask import read_label
from infer.steps.calls import Calls, Limits
from infer.steps.reasoning import answered
from refinery.contract.records import KnowledgeLabel, Passage, Question, read_records
from refinery.contract.trace import Prediction
from refinery.llms.base import Need
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt


class Options(Recipe):
    """The judge of self-knowledge and its threshold."""

    judge: Literal["knn", "trained"] = Field(
        default="knn", description="knn: the labels of the nearest questions vote; trained: a self-knowledge judge, as RA-ISF trains"
    )
    labels: Path | None = Field(default=None, description="knn: a file with self-knowledge labels")
    neighbours: int = Field(default=5, description="knn: how many of the nearest questions vote", ge=1)
    know_threshold: float = Field(
        default=0.5, description="a question counts as known if its fraction of votes, or its probability, is at least this", ge=0, le=1
    )

    @model_validator(mode="after")
    def _labels_for_knn(self) -> Self:
        if self.judge == "knn" and self.labels is None:
            raise ValueError("judge knn needs 'labels', a file of self-knowledge labels (refinery distill, task self_knowledge)")
        return self


def llm_needs(options: Options) -> frozenset[Need]:
    """The features that an endpoint must support."""
    return READS_LABELS if options.judge == "trained" else NO_NEEDS


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Judge whether the model knows the answer, and make one call, with or without passages."""
    if await _share_known(question.text, session, options) >= options.know_threshold:
        prompt = render_prompt("answer_direct", question=question.text)
        return session.prediction(await answered("answer_direct", prompt, question.text, session))
    passages = await session.search(question.text)
    prompt = render_prompt("answer_with_passages", question=question.text, passages=passages)
    return session.prediction(await answered("answer_with_passages", prompt, question.text, session))


async def _share_known(question: str, session: Session, options: Options) -> float:
    if options.judge == "trained":
        context = session.context(knowledge_prompt(question))
        probs = await read_label("self_knowledge", context, (KNOW, UNKNOW), question, session)
    else:
        assert options.labels is not None, "the options require them"
        index, labels = _labeled(options.labels)
        found = await index.search(question, k=options.neighbours)
        known = sum(labels[int(hit.passage.id)] == "know" for hit in found)
        share = known / len(found) if found else 0.0
        probs = {KNOW: share, UNKNOW: 1 - share}
    session.record("self_knowledge", question, depth=0, probabilities=probs)
    return probs[KNOW]


@cache
def _labeled(path: Path) -> tuple[Any, list[str]]:
    """An index of the labeled questions, and their labels."""
    from refinery.retrievers.bm25 import Bm25

    rows = read_records(path, KnowledgeLabel)
    return Bm25([Passage(id=str(number), text=row.question) for number, row in enumerate(rows)]), [row.label for row in rows]


def plan(options: Options, limits: Limits) -> list[Calls]:
    """A trained judge is one call; then one answers, closed-book or from all passages."""
    judge = [Calls("self_knowledge", (1, 1))] if options.judge == "trained" else []
    return [*judge, Calls("answer_with_passages", (1, 1), limits.answer, limits.passages)]


DECODER = Decoder(decode, Options, needs_retriever=True, llm_needs=llm_needs, plan=plan)
