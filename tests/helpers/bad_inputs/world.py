"""The working folder of somebody who makes one mistake: small inputs of every stage, and finished runs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from refinery.contract.records import Passage, Question, RelevanceLabel, write_records
from refinery.contract.trace import Cost, Prediction
from refinery.runtime.recipes.shipped_files import DEMO_CHECKPOINT, shipped

BASE = "base"  # a link to the demo's checkpoint
TEACHER = {"base_url": "{url}", "model": "teacher", "max_tries": 1, "api_key_env": "REFINERY_TEST_KEY"}
BM25 = {"name": "bm25", "passages": "passages.jsonl"}
DISTILL = {"task": "decomposition", "questions": ["questions.jsonl"], "output_dir": "run", "teacher": TEACHER}
TRAIN = {
    "task": "relevance",
    "base": BASE,
    "data": ["labels.jsonl"],
    "output_dir": "run",
    "max_length": 512,
    "learning_rate": 0.001,
    "dtype": "float32",
}
INFER = {"decoder": "direct", "questions": ["questions.jsonl"], "output_dir": "run", "llm": {"base": BASE}, "max_new_tokens": 4}
SERVED = {key: value for key, value in INFER.items() if key != "llm"} | {"endpoint": TEACHER}
RAG = INFER | {"decoder": "rag", "retriever": BM25}


@dataclass(frozen=True, slots=True)
class BadInput:
    """One mistake: the files that have it, the command, and what its one line of error must contain.

    `files` are contents by path; a mapping is written as YAML. In the command and the files, {url} is the address of a server on loopback
    that gives `answer` to every POST, or of a port that nothing listens on. `keeps` are the paths that the command may leave behind.
    """

    name: str
    command: str
    says: tuple[str, ...]
    files: dict[str, Any] = field(default_factory=dict)
    answer: Callable[[dict[str, Any]], Any] | None = None
    prepare: Callable[[Path], None] | None = None
    keeps: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


def write_world(folder: Path, url: str) -> None:
    """The inputs without a mistake; the endpoint is at `url`."""
    questions = [Question(id=id, text=f"Where is {id}?", answers=["France"], split="train") for id in ("Lyon", "Nice", "Lille", "Brest")]
    write_records(folder / "questions.jsonl", questions)
    passages = [Passage(id=id, title=id, text=f"{id} is a city in France.") for id in ("Lyon", "Nice", "Lille")]
    write_records(folder / "passages.jsonl", passages)
    labels = [
        RelevanceLabel(question_id=question.id, question=question.text, passage=passage, label=label)
        for question in questions
        for passage, label in zip(passages, ("relevant", "irrelevant"), strict=False)
    ]
    write_records(folder / "labels.jsonl", labels)
    (folder / BASE).symlink_to(shipped(DEMO_CHECKPOINT))
    for name, values in {"distill": DISTILL, "train": TRAIN, "infer": INFER, "rag": RAG, "served": SERVED}.items():
        write_file(folder / f"{name}.yaml", values, url)
    _write_finished(folder / "answered", "infer", INFER | {"output_dir": "answered"})
    _write_finished(folder / "trained", "train", TRAIN | {"output_dir": "trained"})


def _write_finished(run: Path, stage: str, recipe: dict[str, Any]) -> None:
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"stage": stage, "recipe": recipe}))
    (run / "metrics.json").write_text(json.dumps({"train_loss": 0.5} if stage == "train" else {"results": {}}))
    cost = Cost(calls=1, retrievals=0, prefill_tokens=1, decode_tokens=1)
    write_records(run / "predictions.jsonl", [Prediction(question_id="Lyon", question="Where?", answer="France", trace=[], cost=cost)])


def write_file(path: Path, content: Any, url: str) -> None:
    """Write text, bytes, or a mapping as YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_text(
            yaml.safe_dump(content, sort_keys=False).replace("{url}", url).replace("{root}", url.removesuffix("/v1")), encoding="utf-8"
        )


def snapshot(folder: Path) -> dict[str, bytes]:
    """The content of every file, and of every empty folder, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if path.is_file() or not any(path.iterdir())
    }


def copy_of_base(**changed: str | None) -> Callable[[Path], None]:
    """Makes `model/`, a copy of the demo's checkpoint in which each file (`__` is its dot) has the given text, or is missing for None."""

    def prepare(folder: Path) -> None:
        shutil.copytree(shipped(DEMO_CHECKPOINT), folder / "model")
        for name, text in changed.items():
            file = folder / "model" / name.replace("__", ".")
            file.unlink() if text is None else file.write_text(text)

    return prepare
