"""What a trained sub-model does on held-out labels: the checkpoint is loaded back from disk, as inference will load it."""

import asyncio
from typing import Any

from refinery.llms.build import ModelConfig, build_llm
from refinery.metrics.classification import accuracy, label_f1
from refinery.records import Decomposition, KnowledgeLabel, RelevanceLabel
from refinery.sub_models import (
    IRRELEVANT,
    KNOW,
    RELEVANT,
    UNKNOW,
    decomposition_prompt,
    knowledge_prompt,
    parse_sub_questions,
    relevance_prompt,
)
from train.data import read_rows
from train.recipe import TrainRecipe

_MAX_NEW_TOKENS = 128


def evaluate(recipe: TrainRecipe) -> dict[str, Any]:
    """Accuracy and F1 against the validation labels; empty for trajectories, which inference evaluates."""
    if recipe.task == "refinement":
        return {}
    records = read_rows(recipe.validation, recipe)
    llm = build_llm(ModelConfig(base=str(recipe.output_dir)))
    scores = asyncio.run(_decompositions(llm, records) if recipe.task == "decomposition" else _labels(llm, records))
    return {"validation_rows": len(records), **scores}


async def _labels(llm: Any, records: list[KnowledgeLabel | RelevanceLabel]) -> dict[str, float]:
    async def read(record: KnowledgeLabel | RelevanceLabel) -> str:
        if isinstance(record, KnowledgeLabel):
            prompt, labels = knowledge_prompt(record.question), (KNOW, UNKNOW)
        else:
            prompt, labels = relevance_prompt(record.question, record.passage), (RELEVANT, IRRELEVANT)
        shares = await llm.context(prompt).choose(labels)
        return max(shares, key=shares.__getitem__).strip()

    predicted = await asyncio.gather(*(read(record) for record in records))
    gold = [record.label for record in records]
    positive = (KNOW if isinstance(records[0], KnowledgeLabel) else RELEVANT).strip()
    return {"accuracy": accuracy(predicted, gold), "f1": label_f1(predicted, gold, positive=positive)}


async def _decompositions(llm: Any, records: list[Decomposition]) -> dict[str, float]:
    """Accuracy is the share of lists that are equal; F1 is over the sub-questions of all lists."""

    async def decompose(record: Decomposition) -> list[str]:
        reply = await llm.context(decomposition_prompt(record.question)).generate(max_new_tokens=_MAX_NEW_TOKENS)
        return parse_sub_questions(reply.text)

    predicted = await asyncio.gather(*(decompose(record) for record in records))
    gold = [record.sub_questions for record in records]
    shared = sum(len(set(p) & set(g)) for p, g in zip(predicted, gold, strict=True))
    total = sum(len(set(p)) + len(set(g)) for p, g in zip(predicted, gold, strict=True))
    exact = sum(p == g for p, g in zip(predicted, gold, strict=True))
    return {"accuracy": exact / len(records), "f1": 2 * shared / total}
