"""Answer one question with the model, retriever and decoder of an earlier run, and print the trace."""

import asyncio
from pathlib import Path

from rich.console import Console

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe, pipeline_recipe
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.errors import RunDirError
from refinery.reporting.results import print_trace
from refinery.runtime.run_dir import read_run


def print_answer(question: str, run: Path, *, decoder: str) -> None:
    """Print the trace of one question. Raises RunDirError when `run` holds no infer run."""
    pipeline = Pipeline(run_pipeline_recipe(run, decoder=decoder))
    pipeline.load()
    print_trace(asyncio.run(_answer(pipeline, question)), Console())


async def _answer(pipeline: Pipeline, question: str) -> Prediction:
    try:
        return await pipeline.answer(Question(id="asked", text=question))
    finally:
        await pipeline.close()


def run_pipeline_recipe(run: Path, *, decoder: str) -> PipelineRecipe:
    """The pipeline of an infer run, or of the run that the demo in `run` made of `decoder`."""
    inside = run / "infer" / decoder
    folder = inside if inside.is_dir() else run
    record = read_run(folder)
    if record["stage"] != "infer":
        raise RunDirError(f"{run}: is a {record['stage']} run. Name the output_dir of an infer run, or of the demo.")
    return pipeline_recipe(record["recipe"], where=str(folder / "run.json"))
