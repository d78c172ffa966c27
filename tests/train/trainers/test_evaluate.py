"""Scores by use: what is counted, that a model in training is left as it was, and that its scores choose what is kept."""

import json

import pytest
import torch
from helpers.family_rows import ROWS, recipe_values
from pydantic import ValidationError

from refinery.contract.records import Step, write_records
from refinery.llms.fake import FakeLLM, FakeTokenizer
from refinery.tasks.base import load_task
from refinery.tasks.self_knowledge import KNOW, UNKNOW
from train.method import load_family
from train.recipe import TrainRecipe
from train.rows.data import training_records
from train.run import run
from train.trainers.evaluate import evaluate_model, score


@pytest.fixture
def recipe(tiny_bases, tmp_path):
    def build(task: str, **changes) -> TrainRecipe:
        values = recipe_values(tmp_path, task=task, base=tiny_bases["untied"], max_length=512)
        return TrainRecipe.model_validate(values | {"validation": values["data"]} | changes)

    return build


class ActionTokenizer(FakeTokenizer):
    """Lets the fake write a control token: a word `@[A_Response]` is that token."""

    def __call__(self, text: str, **options) -> dict[str, list[int]]:
        ids = super().__call__(text)["input_ids"]
        return {"input_ids": [self.convert_tokens_to_ids(self.convert_ids_to_tokens(i)[1:]) or i for i in ids]}


def fake(script) -> FakeLLM:
    return FakeLLM(script, tokenizer=ActionTokenizer())


def test_a_student_is_scored_by_the_replies_that_are_its_teachers(recipe):
    llm = FakeLLM(lambda text: "Maria Dune" if "Dune?" in text else "Maria")
    assert score(llm, ROWS["traces"], recipe("traces")) == {"accuracy": 0.25}


def test_a_generator_is_scored_step_by_step_along_the_right_trajectory(recipe):
    """Four questions, two steps each: the fake searches where it should, twice with the right query, and never stops for one of them."""

    def script(text: str) -> str:
        name = next(n for n in ("Dune", "Golden Harbor", "The Iron Raven", "Silent Valley") if f"directed {n}?" in text)
        if "[R_Evidences]" not in text:
            return f"@[S_Rewritten_Query] {f'director of {name}' if name in ('Dune', 'Golden Harbor') else 'something else'}"
        if name == "Silent Valley":
            return "@[S_Rewritten_Query] more"
        return f"@[A_Response] {'the Maria Dune.' if name != 'Dune' else 'Nobody'}"

    llm = fake(script)
    scores = score(llm, ROWS["refinement"], recipe("refinement"))
    assert scores == {
        "action_validity": 1.0,
        "stop_f1": pytest.approx(2 * 3 / (3 + 4)),
        "query_exact_match": 0.5,
        "answer_exact_match": 0.5,
    }
    assert len(llm.calls) == 8
    assert sum("film directed by Maria Dune." in text for text in llm.texts("generate")) == 4  # the evidence is given, not searched for


@pytest.mark.parametrize("task", ["traces", "refinement"])
def test_a_right_reply_is_right_however_long_it_is(recipe, task):
    words = " ".join(f"word{number}" for number in range(300))
    if task == "traces":
        assert score(FakeLLM(lambda text: words), [ROWS[task][0].model_copy(update={"reply": words})], recipe(task)) == {"accuracy": 1.0}
        return
    answer = ROWS[task][0].model_copy(update={"steps": [Step(action="answer", text=words)]})
    assert score(fake(lambda text: f"@[A_Response] {words}"), [answer], recipe(task))["answer_exact_match"] == 1


def test_text_that_is_no_step_is_invalid(recipe):
    scores = score(fake(lambda text: "Maria Dune"), ROWS["refinement"], recipe("refinement"))
    assert scores == {"action_validity": 0.0, "stop_f1": 0.0, "query_exact_match": 0.0, "answer_exact_match": 0.0}


def test_a_judge_is_scored_by_its_probabilities(recipe):
    shares = {"Dune": 0.9, "Golden Harbor": 0.6, "The Iron Raven": 0.4, "Silent Valley": 0.2}

    def script(text: str) -> dict[str, float]:
        share = next(share for name, share in shares.items() if name in text)
        return {KNOW: share, UNKNOW: 1 - share}

    scores = score(FakeLLM(script), ROWS["self_knowledge"], recipe("self_knowledge"))  # know, unknow, know, unknow
    assert scores["accuracy"] == 0.5
    assert scores["f1"] == 0.5
    assert scores["auc"] == 0.75
    # Sure of 0.9 (right), 0.6 (wrong), 0.6 (wrong) and 0.8 (right); the two of 0.6 share a bin.
    assert scores["ece"] == pytest.approx((0.1 + 2 * 0.6 + 0.2) / 4)


@pytest.mark.parametrize("task", ["self_knowledge", "refinement"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_evaluating_a_model_in_training_changes_nothing_of_it(recipe, task, checkpointing):
    settings = recipe(task, eval_steps=3, gradient_checkpointing=checkpointing)
    family = load_family(settings)
    model, tokenizer = family.build_model(settings)
    rows, _ = family.encode_rows(training_records(settings), settings, tokenizer)
    trainer = family.build_trainer(model, tokenizer, rows, settings)
    attention = model.config._attn_implementation
    hooks = {name: len(module._forward_hooks) for name, module in model.named_modules()}
    before, random_state = {name: p.detach().clone() for name, p in model.named_parameters()}, torch.get_rng_state()
    scores = evaluate_model(model, tokenizer, settings)
    assert scores.keys() == set(load_task(task).scores)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert {name: len(module._forward_hooks) for name, module in model.named_modules()} == hooks
    assert model.config._attn_implementation == attention
    trainer.train()
    assert {f"eval_{name}" for name in load_task(task).scores} <= {key for log in trainer.state.log_history for key in log}


@pytest.mark.parametrize(
    ("family", "task"), [("causal", "self_knowledge"), ("causal", "refinement"), ("seq2seq", "refinement"), ("classifier", "relevance")]
)
def test_evaluating_leaves_no_tensor_that_training_could_not_save(recipe, tiny_t5s, tiny_encoder, family, task):
    """ZeRO-3 keeps the weights that a forward pass gathers, for the step that follows; made under inference_mode they stop that step."""
    base = {"seq2seq": {"base": str(tiny_t5s["tied"])}, "classifier": {"base": str(tiny_encoder), "max_length": 128}}.get(family, {})
    settings = recipe(task, family=family, eval_steps=1, **base)
    model, tokenizer = load_family(settings).build_model(settings)
    seen: list[bool] = []
    for module in model.modules():
        module.register_forward_hook(lambda module, given, output: seen.append(torch.empty(0).is_inference()))
    evaluate_model(model, tokenizer, settings)
    assert seen
    assert not any(seen)


def test_the_generators_best_checkpoint_is_chosen_by_generation(recipe):
    settings = recipe("refinement", strategy="full", max_steps=30, eval_steps=15, metric_for_best_model="answer_exact_match")
    metrics = run(settings, resume=False)
    history = [json.loads(line) for line in (settings.output_dir / "history.jsonl").read_text().splitlines()]
    scores = {row["step"]: row["eval_answer_exact_match"] for row in history if "eval_answer_exact_match" in row}
    assert list(scores) == [15, 30]
    assert metrics["best_score"] == metrics["answer_exact_match"] == max(scores.values()) == 1.0
    assert metrics["stop_f1"] == metrics["action_validity"] == 1.0


@pytest.mark.parametrize("learning_rate", [1e-3, 0.1])
def test_of_checkpoints_with_the_same_score_the_one_with_the_lowest_loss_is_kept(recipe, monkeypatch, learning_rate):
    monkeypatch.setattr("train.trainers.generative_eval.evaluate_model", lambda *arguments: {"answer_exact_match": 0.25})
    settings = recipe("refinement", strategy="full", max_steps=4, eval_steps=1, metric_for_best_model="answer_exact_match")
    metrics = run(settings.model_copy(update={"learning_rate": learning_rate, "warmup_steps": 0}), resume=False)
    history = [json.loads(line) for line in (settings.output_dir / "history.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["eval_loss"] for row in history if "eval_loss" in row}
    assert (metrics["best_step"], metrics["best_score"]) == (min(losses, key=losses.__getitem__), 0.25)


def test_a_row_that_is_too_long_to_train_on_is_not_asked(recipe):
    settings = recipe("self_knowledge", max_length=100)
    long = ROWS["self_knowledge"][0].model_copy(update={"question": "Who? " * 200})
    write_records(settings.validation[0].with_name("held_out.jsonl"), [*ROWS["self_knowledge"], long])
    settings = settings.model_copy(update={"validation": [settings.validation[0].with_name("held_out.jsonl")]})
    assert run(settings, resume=False)["validation_rows"] == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation": [], "eval_steps": 5}, "evaluation needs held-out rows: name them by `validation`"),
        ({"metric_for_best_model": "auc"}, "choosing the best checkpoint needs evaluations: set `eval_steps`"),
        ({"eval_steps": 5, "metric_for_best_model": "loss"}, "a model of this task is scored by accuracy, f1, auc, ece"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(recipe, changes, message):
    with pytest.raises(ValidationError, match=message):
        recipe("self_knowledge", **changes)
