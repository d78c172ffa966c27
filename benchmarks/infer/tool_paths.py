"""`decoder: tool_search` in this process and through `transformers serve`: whether a model's paths are the same, text by text.

python -m benchmarks.infer.tool_paths runs/real/tools recipes/real/data/hotpotqa/test.json --limit 4

The model is a whole checkpoint whose chat template knows tools; a search is BM25 over the paragraphs that come with a question. Both
decode greedily in float32 on the CPU. Exit code 1: some path differs.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.infer.serving import transformers_server
from infer.pipeline import Pipeline
from infer.recipe import InferRecipe
from refinery.contract.records import Question
from refinery.questions.base import read_questions


async def paths(model: dict[str, Any], questions: Sequence[Question], *, tokens: int) -> list[list[tuple[str, str]]]:
    """The (action, text) of each step that a model takes for each question, and the fault of a call that cannot be read."""
    recipe = {"decoder": "tool_search", "questions": ["unused"], "output_dir": "unused", "max_new_tokens": tokens, **model}
    recipe |= {"retriever": {"name": "candidates"}, "passages_per_query": 1, "options": {"system_prompt": "rq_rag_multi_hop"}}
    pipeline = Pipeline(InferRecipe.model_validate(recipe))
    pipeline.load()
    traces = [(await pipeline.answer(question)).trace for question in questions]
    await pipeline.close()
    return [[(step.name, step.text or "") for step in trace if step.name != "retrieve"] for trace in traces]


def main(argv: Sequence[str] | None = None) -> int:
    """Print both paths of each question as JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="a folder")
    parser.add_argument("questions", type=Path, help="a file of one of the shipped readers, with paragraphs")
    parser.add_argument("--limit", type=int, default=4, help="how many questions")
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of an answer")
    arguments = parser.parse_args(argv)
    questions = read_questions([arguments.questions], reader="by_folder")[: arguments.limit]
    ours = asyncio.run(paths({"llm": {"base": arguments.checkpoint, "dtype": "float32"}}, questions, tokens=arguments.tokens))
    with transformers_server(arguments.checkpoint) as server:
        endpoint = {"base_url": server.url, "model": server.model}
        theirs = asyncio.run(paths({"endpoint": endpoint}, questions, tokens=arguments.tokens))
    rows = [
        {"question": question.text, "here": here, "served": "equal" if here == served else served}
        for question, here, served in zip(questions, ours, theirs, strict=True)
    ]
    print(json.dumps(rows, indent=2, ensure_ascii=False))
    return int(ours != theirs)


if __name__ == "__main__":
    sys.exit(main())
