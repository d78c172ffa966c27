"""A generator learns the selection of its own tree: run, planned and refused, and what of a path is trained."""

import json
import re

import pytest
import torch
from helpers.grpo_runs import grpo_values, questions, trained_generator

from refinery.contract.control_tokens import RQ_RAG
from refinery.contract.formats import ACTIONS
from refinery.contract.segments import control_token_id
from refinery.errors import RecipeError
from refinery.runtime.recipe import build_recipe
from train.launch.launch import Launch
from train.methods.grpo import build_model
from train.planning.plan import plan_lines
from train.recipe import TrainRecipe
from train.rollouts.sampler import RolloutSampler
from train.run import run


@pytest.fixture(scope="module")
def generator(tiny_bases, tmp_path_factory):
    return trained_generator(tmp_path_factory.mktemp("generator"), tiny_bases["tied"])


@pytest.fixture
def recipe(generator, tmp_path):
    """Builds recipes that learn the selection of trees of seven paths."""

    def build(**changes) -> TrainRecipe:
        grpo = {"learn": "selection", "num_generations": 7, "evaluate": ["tree"], "share_prefixes": True}
        values = grpo_values(tmp_path, generator, grpo=grpo, per_device_train_batch_size=7, **changes)
        values["rollouts"]["options"] = {"max_depth": 2, "width": 2, "max_query_tokens": 4, "fidelity": "fixed"}
        recipe = TrainRecipe.model_validate(values)
        recipe.check("r.yaml")
        return recipe

    return build


def test_a_generator_learns_which_path_of_its_tree_to_select(recipe, tmp_path):
    held_out = {"validation": [str(tmp_path / "held_out.jsonl")], "eval_steps": 2, "metric_for_best_model": "tree_answer_score"}
    trained = recipe(**held_out)
    metrics = run(trained, resume=False)
    steps = [json.loads(line) for line in (trained.output_dir / "history.jsonl").read_text().splitlines()]
    assert (metrics["rollouts"], metrics["rollouts_failed"]) == (28, 0)
    assert metrics["tokens_computed"] < metrics["tokens_of_rows"] / 2
    assert all(0 <= row["expected_answer"] <= 1 for row in steps if "reward" in row)
    assert "tree_answer_score" in metrics
    assert "answer_score" not in metrics


def test_the_paths_of_a_tree_are_what_the_decoder_read_and_wrote_and_their_actions_are_trained(recipe):
    settings = recipe()
    model, tokenizer = build_model(settings)
    paths = RolloutSampler(settings).sample(model, tokenizer, [question for question in questions() for _ in range(7)], key="", first=0)
    actions = {control_token_id(token.token, tokenizer) for token in RQ_RAG if token.role in ACTIONS}
    for one in paths:
        (text,) = one.texts
        ids = torch.tensor(text.token_ids)
        logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0][:-1], -1).gather(-1, ids[1:, None])[:, 0]
        mine = torch.tensor(text.written)
        torch.testing.assert_close(logprobs[mine[1:]], torch.tensor(text.logprobs)[mine], rtol=1e-4, atol=1e-4)
        trained = ids[mine].tolist()
        assert actions.issuperset(trained)  # no token of a query, of evidence or of the answer
        assert len(trained) == one.searches + 1
    assert [sum(one.share for one in paths[start : start + 7]) for start in range(0, 28, 7)] == [pytest.approx(1)] * 4


def test_the_plan_of_trees_counts_what_their_paths_share(recipe):
    text = "\n".join(plan_lines(recipe(), Launch(1, "none")))
    assert "2 are asked at once, 7 rollouts of each, the paths of its tree" in text
    counted = re.search(r"prompt (\S+), 2 x \(query (\S+), evidence about (\S+)\), answer (\S+);[^;]*; (\S+) are", text)
    assert counted
    prompt, query, evidence, answer, computed = (int(number.replace(",", "")) for number in counted.groups())
    assert computed == 2 * (prompt + 6 * (query + evidence) + 7 * answer)


LEARNED = {"learn": "selection", "num_generations": 4}
RA_ISF = {"retriever": {"passages": "p"}, "decoder": "ra_isf", "llm": {"base": "x"}}


def tree(grpo: dict, **options) -> dict:
    """A recipe that learns the selection of a tree of one search, and so of four paths."""
    return {"grpo": grpo, "rollouts": {"retriever": {"passages": "p"}, "options": {"max_depth": 1, "fidelity": "fixed"} | options}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (tree({"learn": "selection"}), "grpo.num_generations: is 8, and the tree has 4 paths. Set it to 4"),
        (tree(LEARNED, max_depth=0), "options.max_depth: 0 gives a tree of one path"),
        (tree(LEARNED, fidelity="paper"), "options.selection: ensemble with fidelity paper has no shares that actions change"),
        (tree(LEARNED, selection="confidence"), "confidence with fidelity fixed has no shares that actions change. Use ensemble"),
        (tree(LEARNED | {"branching": [4]}), "grpo.branching: is of sampled paths"),
        (tree(LEARNED | {"temperature": 0.7}), "grpo.temperature: is of sampled paths"),
        (tree(LEARNED | {"loss_type": "grpo"}), "grpo divides each path by its length"),
        (tree(LEARNED | {"scale_rewards": "batch"}), "batch is not that of one selection"),
        (tree(LEARNED | {"search_budget": 2.0}), "grpo.search_budget: is for paths that the model ends itself"),
        ({"task": "decomposition", "grpo": LEARNED, "rollouts": RA_ISF}, "grpo.learn: selection is of RQ-RAG's tree"),
    ],
)
def test_a_selection_that_cannot_be_learned_is_refused_in_one_line(changes, message):
    values = {"task": "refinement", "method": "grpo", "base": "x", "data": ["x"], "output_dir": "x", "learning_rate": 1e-5}
    with pytest.raises(RecipeError, match=message) as refused:
        build_recipe(values | changes, TrainRecipe, where="r.yaml").check("r.yaml")
    assert "\n" not in str(refused.value)
