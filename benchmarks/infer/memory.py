"""The peak memory of finishing, rescoring, viewing and comparing runs, by their size: `python -m benchmarks.infer.memory`.

Each run is written in the state of a killed one: every question has its outcome in the ledger, and nothing else was done. `resume` then
reads the questions, merges and scores, as a run does after its last question is answered. No model is called. Every command is a separate
process, whose peak memory the system reports.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from infer.decoders import rq_rag
from infer.decoders.base import Decoder
from infer.pipeline import Pipeline
from infer.recipe import InferRecipe
from infer.run_record.ledger import AnswerLedger
from infer.run_record.provenance import fingerprints
from infer.run_record.questions import AskedQuestions
from infer.steps.selection import Definition, select_all
from refinery.contract.records import Action, Passage, Question, Step, Trajectory, write_records
from refinery.contract.trace import Cost, Prediction, ScoredPassage, TraceStep
from refinery.runtime.recipe import load_recipe
from refinery.runtime.run.run_dir import open_run

SIZES, TREES, DEPTH = (10_000, 1_000_000), (200, 5_000), 3
_WORDS = [f"word{number}" for number in range(5_000)]
_ACTIONS: tuple[Action, ...] = ("rewrite", "decompose", "disambiguate")

Trees = Decoder(rq_rag.decode, rq_rag.Options, needs_retriever=True)  # over a chat endpoint, which is never called


def measure(folder: Path, size: int, *, trees: bool) -> dict[str, Any]:
    """Peak megabytes and seconds of each command on a run of `size` questions."""
    run, recipe = folder / "run", folder / "recipe.yaml"
    _write_killed_run(folder, size, trees=trees)
    found: dict[str, Any] = {"resume": _peak("infer", recipe, "--resume"), "rescore": _peak("rescore", run)}
    found["predictions_mb"] = round((run / "predictions.jsonl").stat().st_size / 1e6, 1)
    if trees:
        found["rescore_fixed"] = _peak("rescore", run, "--selection", "ppl", "--fidelity", "fixed")
    shutil.copytree(run, folder / "other")
    found["compare"] = _peak("compare", run, folder / "other", "--baseline", str(run)) if not trees else _peak("compare", run)
    found["view"] = _peak("view", run)
    found["page"] = _peak("view", run, "--output", folder / "page.html", "--limit", 200)
    return found


_RUN = """
import re, sys
from pathlib import Path
from refinery.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


def _peak(*words: object) -> dict[str, float]:
    """Run a command of `refinery` that reads its peak memory from the system, because `wait4` would include the parent's memory."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-P", "-c", _RUN, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr[-2000:]}")
    return {"mb": round(int(done.stdout.split()[-1]) / 1024, 1), "seconds": round(time.perf_counter() - started, 1)}


def _write_killed_run(folder: Path, size: int, *, trees: bool) -> None:
    questions = folder / "questions.jsonl"
    write_records(questions, map(_question, range(size)))
    write_records(folder / "passages.jsonl", _pool())
    values = {
        "decoder": "benchmarks.infer.memory:Trees" if trees else "rag",
        "name": "measured",
        "questions": [str(questions)],
        "output_dir": str(folder / "run"),
        "endpoint": {"base_url": "http://127.0.0.1:9/v1", "model": "never-asked"},
        "retriever": {"passages": str(folder / "passages.jsonl")},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
    recipe = load_recipe(folder / "recipe.yaml", InferRecipe)
    known = fingerprints(recipe, AskedQuestions(recipe), Pipeline(recipe).options)
    output = open_run(recipe, recipe.output_dir, stage="infer", resume=False, fingerprints=known)
    drawn, pool = random.Random(0), _pool()
    with AnswerLedger(output, 0, attempt=1) as ledger:
        for number in range(size):
            ledger.write(_tree(number, drawn, pool) if trees else _prediction(number, drawn, pool))


def _question(number: int) -> Question:
    return Question(
        id=f"q{number}", text=f"Who directed film {number}?", answers=[f"Maria {number}"], supporting=[f"p{number % 1_000}"], type="bridge"
    )


def _pool() -> list[Passage]:
    drawn = random.Random(1)
    return [Passage(id=f"p{number}", title=f"film {number}", text=" ".join(drawn.choices(_WORDS, k=80))) for number in range(1_000)]


def _prediction(number: int, drawn: random.Random, pool: list[Passage]) -> Prediction:
    """An answer of one to ten words, after a search that finds five passages."""
    answer = " ".join(["Maria", str(number)][: drawn.randint(0, 2)] + drawn.choices(_WORDS, k=drawn.randint(0, 8)))
    hits = [ScoredPassage(**passage.model_dump(), retrieval_score=drawn.random()) for passage in drawn.sample(pool, 5)]
    trace = [
        TraceStep(name="retrieve", depth=0, question=_question(number).text, passages=hits),
        TraceStep(name="answer", depth=0, question=_question(number).text, text=answer),
    ]
    return Prediction(question_id=f"q{number}", question=_question(number).text, answer=answer, trace=trace, cost=_COST)


_COST = Cost(calls=1, retrievals=1, prefill_tokens=700, decode_tokens=8)


def _tree(number: int, drawn: random.Random, pool: list[Passage]) -> Prediction:
    """A tree with three searches at each node, each with three passages found."""
    trace: list[TraceStep] = []

    def written(count: int) -> dict[str, Any]:
        return {"text": " ".join(drawn.choices(_WORDS, k=count)), "logprobs": [-drawn.random() for _ in range(2 * count)]}

    def below(before: tuple[Step, ...]) -> Iterator[list[Step]]:
        yield [*before, Step(action="answer", **written(drawn.randint(1, 5)))]
        for action in _ACTIONS if len(before) < DEPTH else ():
            found = drawn.sample(pool, 3)
            search = Step(action=action, **written(10), passages=found)
            hits = [ScoredPassage(**passage.model_dump(), retrieval_score=1.0) for passage in found]
            trace.append(TraceStep(name="retrieve", depth=len(before), question=search.text, passages=hits))
            yield from below((*before, search))

    question = _question(number)
    paths = [Trajectory(question_id=question.id, question=question.text, steps=steps) for steps in below(())]
    selected = select_all(paths, Definition("paper"))
    values: dict[str, Any] = {"trace": trace, "cost": _COST, "paths": paths, "selected": selected}
    return Prediction(question_id=question.id, question=question.text, answer=selected["ensemble"], **values)


def main(argv: list[str] | None = None) -> None:
    """Print the figures as JSON, with the growth of each command's memory from the smallest run to the largest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="numbers of predictions")
    parser.add_argument("--trees", type=int, nargs="*", default=list(TREES), help=f"numbers of trees of depth {DEPTH}")
    arguments = parser.parse_args(argv)
    figures: dict[str, Any] = {}
    for kind, sizes in (("predictions", arguments.sizes), ("trees", arguments.trees)):
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                figures.setdefault(kind, {})[size] = measure(Path(folder), size, trees=kind == "trees")
        if len(sizes) > 1:
            least, most = figures[kind][min(sizes)], figures[kind][max(sizes)]
            figures[kind]["growth"] = {name: round(most[name]["mb"] / least[name]["mb"], 2) for name in least if name != "predictions_mb"}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
