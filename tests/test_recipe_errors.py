"""A fault of a recipe is one line that opens with the recipe's file and the key, in every stage, and nothing is written."""

import json

import pytest
import yaml

from refinery.cli import main
from refinery.contract.records import Passage, Question, RelevanceLabel, write_records
from refinery.contract.trace import Prediction

TEACHER = {"base_url": "http://127.0.0.1:1/v1", "model": "mock", "max_tries": 1, "outage_patience_seconds": 0}
DISTILL = {"task": "decomposition", "questions": ["questions.jsonl"], "output_dir": "run", "teacher": TEACHER}
TRAIN = {
    "task": "relevance",
    "base": "refinery/demo/checkpoint",
    "data": ["labels.jsonl"],
    "output_dir": "run",
    "max_length": 512,
    "learning_rate": 0.001,
}
INFER = {"decoder": "direct", "questions": ["questions.jsonl"], "output_dir": "run", "llm": {"base": "refinery/demo/checkpoint"}}
BM25 = {"name": "bm25", "passages": "passages.jsonl"}
COST = {"calls": 1, "retrievals": 0, "prefill_tokens": 1, "decode_tokens": 1}
NONE = None  # a key that is left out

FAULTS = [
    ("distill", {"tusk": 1}, "tusk: unknown key. Did you mean 'task'?"),
    ("distill", {"task": "decompositon"}, "task: no task 'decompositon'. Did you mean 'decomposition'?"),
    ("distill", {"reader": "jsnol"}, "reader: no reader 'jsnol'. Did you mean 'jsonl'?"),
    ("distill", {"shard": "4/4"}, "shard: i/n counts from 0"),
    ("distill", {"output_dir": NONE}, "output_dir: is missing and has no default."),
    ("distill", {"teacher": NONE}, "teacher: is missing, and task 'decomposition' needs it."),
    ("distill", {"teacher": {"model": 3}}, "teacher.model: Input should be a valid string (got 3)."),
    ("distill", {"max_cost_usd": 5}, "max_cost_usd: no price is known for 'mock'. Set teacher.price"),
    ("distill", {"task": "refinement", "options": {"kind": "multihop"}}, "options.kind: Input should be"),
    ("distill", {"task": "refinement", "options": {"kind": "dialogue", "by": "annotations"}}, "options: by: annotations cannot label"),
    ("distill", {"task": "relevance", "options": {"judge": "each", "swap": True}, "retriever": BM25}, "options.swap: a single passage"),
    ("distill", {"task": "relevance", "retriever": BM25 | {"name": "bm52"}}, "retriever.name: no retriever 'bm52'."),
    ("distill", {"task": "relevance", "retriever": BM25 | {"options": {"b": 2}}}, "retriever.options.b: Input should be less"),
    ("distill", {"task": "questions", "retriever": {"name": "web"}}, "options.documents: task 'questions' needs passages to ask about."),
    ("distill", {"task": "selection", "options": {"metric": "em"}, "runs": ["traces"]}, "options.metric: no metric 'em'."),
    ("distill", {"task": "traces", "runs": ["traces"]}, "runs: the traces contain no prompts."),
    (
        "distill",
        {"task": "self_knowledge", "options": {"by": "student", "samples": 2}, "target_endpoint": TEACHER},
        "options.samples: 2 greedy answers are all the same. Set target_endpoint.temperature above 0",
    ),
    ("train", {"lora_r": 8}, "lora_r: unknown key. It is called 'lora_rank' here."),
    ("train", {"base": NONE}, "base: is missing and has no default."),
    ("train", {"learning_rate": -1}, "learning_rate: Input should be greater than 0 (got -1)."),
    ("train", {"metric_for_best_model": "f2"}, "metric_for_best_model: a model of this task is scored by"),
    ("train", {"strategy": "dora"}, "strategy: dora with "),
    ("train", {"strategy": "alora", "packing": True}, "strategy: alora with "),
    ("train", {"kernels": True}, "kernels: unknown key. It is called 'fused_layers' here."),
    ("infer", {"decoder": "direkt"}, "decoder: no decoder 'direkt'. Did you mean 'direct'?"),
    (
        "infer",
        {"decoder": "ra_isf", "retriever": BM25, "options": {"max_dept": 2}},
        "options.max_dept: unknown key. Did you mean 'max_depth'?",
    ),
    ("infer", {"decoder": "rag"}, "retriever: is missing, and decoder 'rag' needs it."),
    ("infer", {"reader": "popqua"}, "reader: no reader 'popqua'. Did you mean 'popqa'?"),
    ("infer", {"llm": NONE}, "endpoint: name the model by `llm`"),
    ("infer", {"llm": {"base": 3}}, "llm.base: Input should be a valid string (got 3)."),
    ("infer", {"sub_models": {"judge": {"base": "x"}}}, "sub_models.judge: decoder 'direct' has no such role. Roles: none."),
    ("infer", {"decoder": "migres", "retriever": BM25, "options": {"entailment": "nli"}}, "sub_models.entailment: is missing, and decoder"),
    ("infer", {"decoder": "skr", "retriever": BM25, "options": {"judge": "knn"}}, "options: judge knn needs 'labels'"),
    ("infer", {"decoder": "rag", "retriever": BM25 | {"index": "i"}}, "retriever: name the corpus with either"),
    ("infer", {"decoder": "rag", "retriever": BM25 | {"options": {"stemmer": "porto"}}}, "retriever.options.stemmer: no stemmer is called"),
    (
        "infer",
        {"decoder": "rag", "retriever": BM25 | {"options": {"stopwords": "xx"}}},
        "retriever.options.stopwords: no stop words are known for 'xx'",
    ),
    ("infer", {"decoder": "rag", "retriever": {"name": "bm25"}}, "retriever.passages: is missing, and so is `index`."),
    (
        "infer",
        {"decoder": "rag", "retriever": {"name": "hybrid", "options": {"of": [BM25, BM25 | {"options": {"stemmer": "porto"}}]}}},
        "retriever.options.of.1.options.stemmer: no stemmer is called",
    ),
    ("infer", {"decoder": "rag", "retriever": {"name": "candidates", "cache": "c.sqlite"}}, "retriever.cache: candidates has no revision"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with small inputs of every stage."""
    monkeypatch.chdir(tmp_path)
    question = Question(id="q", text="Where is Lyon?", answers=["France"], split="train")
    write_records(tmp_path / "questions.jsonl", [question])
    passage = Passage(id="p", title="Lyon", text="Lyon is a city in France.")
    write_records(tmp_path / "passages.jsonl", [passage])
    relevant = RelevanceLabel(question_id="q", question=question.text, passage=passage, label="relevant")
    write_records(tmp_path / "labels.jsonl", [relevant, relevant.model_copy(update={"label": "irrelevant", "question_id": "r"})])
    traces = tmp_path / "traces"
    traces.mkdir()
    write_records(traces / "predictions.jsonl", [Prediction(question_id="q", question=question.text, answer="France", trace=[], cost=COST)])
    (traces / "run.json").write_text(json.dumps({"stage": "infer", "recipe": {"decoder": "direct"}}))
    (traces / "metrics.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize(("stage", "changes", "message"), FAULTS, ids=[f"{stage} {message.split(':')[0]}" for stage, _, message in FAULTS])
def test_the_recipe_and_the_key_come_first(stage, changes, message, folder, capsys):
    values = {"distill": DISTILL, "train": TRAIN, "infer": INFER}[stage] | changes
    (folder / "recipe.yaml").write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not NONE}))
    assert main([stage, "recipe.yaml"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(f"error: recipe.yaml: {message}")
    assert not (folder / "run" / "metrics.json").exists()
