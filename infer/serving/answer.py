"""Answer one question with the model, retriever and decoder of an earlier run, and print the trace."""

import asyncio
from pathlib import Path

from rich.console import Console

from infer.recipe import InferRecipe
from infer.run import InferBench
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.errors import RunDirError
from refinery.reporting.results import print_trace
from refinery.runtime.recipe import build_recipe
from refinery.runtime.run_dir import read_run


def print_answer(question: str, run: Path, *, decoder: str) -> None:
    """Print the trace of one question. Raises RunDirError when `run` holds no infer run."""
    bench = InferBench(read_infer_recipe(run, decoder=decoder))
    bench.load()
    print_trace(asyncio.run(_answer(bench, question)), Console())


async def _answer(bench: InferBench, question: str) -> Prediction:
    try:
        return await bench.answer(Question(id="asked", text=question))
    finally:
        await bench.close()


def read_infer_recipe(run: Path, *, decoder: str) -> InferRecipe:
    """The recipe of an infer run, or of the run that the demo in `run` made of `decoder`."""
    inside = run / "infer" / decoder
    folder = inside if inside.is_dir() else run
    record = read_run(folder)
    if record["stage"] != "infer":
        raise RunDirError(f"{run}: is a {record['stage']} run. Name the output_dir of an infer run, or of the demo.")
    return build_recipe(record["recipe"], InferRecipe, where=str(folder / "run.json"))
