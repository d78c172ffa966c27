"""A tiny checkpoint, and finished infer runs, written as `infer.run` leaves them, without a model."""

from pathlib import Path

import pytest

from infer.evaluation.answer_files import AnswerFiles
from infer.evaluation.evaluate import evaluate
from infer.evaluation.scores import SCORES_FILE, score
from infer.recipe import InferRecipe
from infer.run_record.provenance import provenance
from refinery.contract.control_tokens import RQ_RAG, write_manifest
from refinery.contract.records import Passage, Question, write_records
from refinery.contract.trace import Cost, Prediction
from refinery.runtime.run.run_dir import open_run

PASSAGES = [Passage(id=str(number), title=f"film {number}", text=f"film {number} is by Maria {number}.") for number in range(5)]


@pytest.fixture
def checkpoint(tiny_model, control_tokenizer, tmp_path) -> Path:
    """A folder with a tiny random model that has RQ-RAG's control tokens."""
    folder = tmp_path / "checkpoint"
    tiny_model.save_pretrained(folder)
    control_tokenizer.save_pretrained(folder)
    write_manifest(folder, RQ_RAG, control_tokenizer)
    return folder


@pytest.fixture
def stored_run(tmp_path):
    """Write a finished run of `questions` with `answers` (or whole predictions); other values go over its recipe."""

    def write(place: str, questions: list[Question], answers: list[str | Prediction], *, passages=PASSAGES, **values) -> Path:
        folder = tmp_path / place
        folder.mkdir(parents=True)
        write_records(folder / "questions.jsonl", questions)
        write_records(folder / "passages.jsonl", passages)
        recipe = InferRecipe.model_validate(
            {
                "decoder": "rag",
                "name": place,
                "questions": [folder / "questions.jsonl"],
                "output_dir": folder / "run",
                "llm": {"base": str(folder)},
                "retriever": {"passages": folder / "passages.jsonl"},
            }
            | values
        )
        predictions = [given if isinstance(given, Prediction) else plain(q, given) for q, given in zip(questions, answers, strict=True)]
        output = open_run(recipe, recipe.output_dir, stage="infer", resume=False)
        rows = score(recipe.name or recipe.decoder, questions, predictions)
        write_records(output / SCORES_FILE, rows)
        with AnswerFiles(output.path) as files:
            for question, prediction in zip(questions, predictions, strict=True):
                files.add(question, prediction)
        output.write_metrics(
            {"results": evaluate(rows, predictions, seconds=7.0), "questions": len(questions)}
            | {"cost": files.cost.report(seconds=7.0)}
            | provenance(recipe, questions, None)
        )
        return output.path

    return write


def plain(question: Question, answer: str) -> Prediction:
    cost = Cost(calls=2, retrievals=1, prefill_tokens=30, decode_tokens=10)
    return Prediction(question_id=question.id, question=question.text, answer=answer, trace=[], cost=cost)
