"""MIGRES' reranker and entailment judge as models that a recipe names: real ones, tiny and random, beside an LLM over HTTP."""

import json

import pytest
import yaml

pytest.importorskip("sentence_transformers")

from infer.__main__ import main
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.demo.teacher.server import serving
from refinery.llms.weights.checkpoint import load_base
from refinery.retrievers.search.cross_encoder import CrossEncoderConfig, load_cross_encoder

QUESTION = "Who directed Dune?"
PASSAGES = [
    Passage(id="film", title="Dune", text="Dune is a film. It was directed by Maria Dune."),
    Passage(id="fox", title="The fox of Dune", text="The quick brown fox jumps over the lazy dog."),
]


def reply(prompt: str) -> str:
    if prompt.startswith("Given the following"):
        return json.dumps({"useful_information": [{"info": "Maria Dune directed Dune.", "support_passages": [1, 2]}]})
    if prompt.startswith("Answer the Question based"):
        return json.dumps({"answer": "Maria Dune" if "Maria Dune directed" in prompt else "unanswerable"})
    return "Nothing."


@pytest.fixture(scope="module")
def llm_url():
    with serving(reply) as server:
        yield server.base_url


@pytest.fixture(scope="module")
def models(tiny_encoder, tiny_t5s, tiny_bases, tmp_path_factory):
    """Folders: encoders with the labels that they tell apart (none but one: a cross-encoder), a T5 and a causal base."""
    import torch

    folders = {"t5": str(tiny_t5s["untied"]), "causal": str(tiny_bases["tied"])}
    for name, labels in (("cross_encoder", ["score"]), ("relevance", ["irrelevant", "relevant"]), ("knowledge", ["unknow", "know"])):
        torch.manual_seed(0)
        folders[name] = str(tmp_path_factory.mktemp("models") / name)
        for part in load_base(str(tiny_encoder), family="classifier", labels=labels):
            part.save_pretrained(folders[name])
    return folders


@pytest.fixture
def run(tmp_path, llm_url):
    """Run a recipe with these values; the exit code and what the questions left behind."""
    write_records(tmp_path / "questions.jsonl", [Question(id=f"q{i}", text=QUESTION, answers=["Maria Dune"]) for i in range(3)])
    write_records(tmp_path / "passages.jsonl", PASSAGES)

    def go(*, options, **values) -> tuple[int, list[Prediction]]:
        recipe = {
            "decoder": "migres",
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "endpoint": {"base_url": llm_url, "model": "scripted"},
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
            "options": {"max_iterations": 1, "no_knowledge_prompting": True} | options,
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        code = main([str(tmp_path / "recipe.yaml")])
        found = tmp_path / "run" / PREDICTIONS_FILE
        return code, list(read_records(found, Prediction)) if found.exists() else []

    return go


def kept(prediction: Prediction) -> dict[str, float]:
    return {passage.id: passage.retrieval_score for step in prediction.trace if step.name == "filter" for passage in step.passages}


def test_a_passage_is_kept_by_its_logit(run, models):
    import asyncio

    scorer = load_cross_encoder(CrossEncoderConfig(model=models["cross_encoder"]))
    low, high = sorted(asyncio.run(scorer.score(QUESTION, [f"{passage.title} {passage.text}" for passage in PASSAGES])))
    options = {"reranker": "cross_encoder", "cross_encoder": {"model": models["cross_encoder"]}, "compression": "none"}
    code, predictions = run(options=options | {"relevance_threshold": (low + high) / 2})
    assert code == 0
    assert [list(kept(prediction).values()) for prediction in predictions] == [[pytest.approx(high, abs=1e-4)]] * 3


@pytest.mark.parametrize("judge", ["relevance", "t5", "causal"])
def test_a_judge_of_any_family_filters_and_checks(run, models, judge):
    options = {"reranker": "judge", "relevance_threshold": 0.0, "entailment": "judge"}
    code, predictions = run(options=options, sub_models={role: {"base": models[judge]} for role in ("reranker", "entailment")})
    assert code == 0
    for prediction in predictions:
        assert all(0 < score < 1 for score in kept(prediction).values())
        assert (prediction.answer == "unknown") == any(step.name == "not_entailed" for step in prediction.trace)


def test_an_nli_model_lets_through_what_it_finds_entailed(run, models):
    code, predictions = run(options={"relevance_threshold": 0.0, "entailment": "nli"}, sub_models={"entailment": {"base": models["t5"]}})
    assert code == 0
    refused = [step.probabilities["entailed"] < 0.5 for prediction in predictions for step in prediction.trace if step.probabilities]
    assert all(refused)
    assert [prediction.answer for prediction in predictions] == ["unknown" if refused else "Maria Dune"] * 3


JUDGE = {"reranker": "judge", "relevance_threshold": 0.5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"options": JUDGE}, "sub_models.reranker: is missing, and decoder 'migres' needs it with these options."),
        ({"options": {"entailment": "nli"}}, "sub_models.entailment: is missing, and decoder 'migres' needs it"),
        ({"options": {"entailment": "judge"}}, "sub_models.entailment: is missing"),
        (
            {"options": {}, "sub_models": {"reranker": {"base": "x"}}},
            "sub_models.reranker: decoder 'migres' has no such role. Roles: leaf, main",
        ),
        ({"options": {"reranker": "judge"}}, "such as 0.5 (got 4.0)"),
        ({"options": {"reranker": "cross_encoder", "cross_encoder": {"model": "no/such"}}}, "cross-encoder 'no/such': cannot be loaded"),
    ],
)
def test_what_a_recipe_lacks_is_one_line_before_anything_is_asked(run, tmp_path, capsys, values, message):
    code, _ = run(**values)
    assert code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "role", "model", "message"),
    [
        (JUDGE, "reranker", "knowledge", "is an encoder that distinguishes unknow from know; it cannot read"),
        (
            {"relevance_threshold": 0.0, "entailment": "nli"},
            "entailment",
            "relevance",
            "is an encoder that distinguishes irrelevant from relevant",
        ),
    ],
)
def test_an_encoder_of_another_kind_is_one_line(run, models, capsys, options, role, model, message):
    code, _ = run(options=options, sub_models={role: {"base": models[model]}})
    assert code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line


def test_a_classifier_is_no_cross_encoder(run, models, tmp_path, capsys):
    code, _ = run(options={"reranker": "cross_encoder", "cross_encoder": {"model": models["relevance"]}})
    assert code == 2
    assert "gives 2 labels, but a reranker gives one score" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
