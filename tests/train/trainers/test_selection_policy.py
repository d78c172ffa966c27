"""Learning the selection: loss and gradients on fixed trees are those of the expected reward, written out."""

from typing import Any

import pytest
import torch
from helpers.grpo_runs import grpo_values, questions

from train.methods.grpo import build_model, build_trainer, encode_rows
from train.recipe import TrainRecipe
from train.rollouts.rollout import Rollout, Text

PROMPT, QUERY, FOUND = [0, 90, 91, 92, 93], [100, 101, 102], [200, 201, 202, 203]
# The answers of a tree: one at its root, and one behind each of three searches.
ANSWERS = [[400, 401], [400, 402, 403], [404], [405, 406, 407, 408]]
TREE = {"max_depth": 1, "max_query_tokens": 8, "fidelity": "fixed"}


def path(number: int, place: int, *, right: bool) -> Rollout:
    """A path of the tree to the question of this number, whose actions are trained."""
    text, question = Text(), questions()[number]
    text.read([*PROMPT, 300 + number])
    for action, follows in ([(50 + place, QUERY + FOUND)] if place else []) + [(60, ANSWERS[place])]:
        text.wrote([action], [-1.0])
        text.read(follows)
    return Rollout(question, [text], answer=question.answers[0] if right else "no", searches=int(place > 0))


def trees(*right: bool) -> list[Rollout]:
    return [path(number, place, right=right[4 * number + place]) for number in range(2) for place in range(4)]


class FixedSampler:
    """Gives the trees, with the shares that they have under a model."""

    def __init__(self, rollouts: list[Rollout], shares: torch.Tensor) -> None:
        self.rollouts = rollouts
        for one, share in zip(rollouts, shares.flatten().tolist(), strict=True):
            one.share = share

    def sample(self, *_: Any, **__: Any) -> list[Rollout]:
        return self.rollouts


def strengths(model, rollouts: list[Rollout]) -> torch.Tensor:
    """The logarithms of what the shares are in proportion to, (trees, paths), by a plain forward pass: of what the model wrote.

    Only the actions have gradients.
    """
    found = []
    for one in rollouts:
        (text,), read = one.texts, len(PROMPT) + 1
        ids = torch.tensor(text.token_ids)
        logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0][:-1], -1).gather(-1, ids[1:, None])[read - 1 :, 0]
        actions = torch.tensor(text.written[read:])
        evidence = torch.isin(ids[read:], torch.tensor(FOUND))
        found.append(logprobs[actions].sum() + logprobs[~actions & ~evidence].sum().detach())
    return torch.stack(found).reshape(2, 4)


def trainer_of(base, tmp_path, rollouts: list[Rollout], **grpo):
    settings = {"learn": "selection", "num_generations": 4, "evaluate": ["tree"], "search_cost": 0.0} | grpo
    batch = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    values = grpo_values(tmp_path, base, grpo=settings, strategy="full", **batch)
    values["rollouts"]["options"] = TREE
    recipe = TrainRecipe.model_validate(values)
    recipe.check("r.yaml")
    model, tokenizer = build_model(recipe)
    trainer = build_trainer(model, tokenizer, encode_rows(questions(), recipe, tokenizer)[0], recipe)
    with torch.no_grad():
        trainer._sampler = FixedSampler(rollouts, strengths(model, rollouts).softmax(1))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def gradients(trainer, rollouts: list[Rollout]) -> tuple[float, dict[str, torch.Tensor]]:
    inputs = trainer._prepare_inputs([{"prompt": one.question.id} for one in rollouts])
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    found = {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}
    trainer.model.zero_grad()
    return loss.item(), found


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scaled", ["none", "group"])
def test_gradients_are_those_of_the_reward_that_the_selection_expects(tiny_bases, tmp_path, scaled, shared):
    rollouts = trees(True, False, False, True, False, False, True, False)
    trainer = trainer_of(tiny_bases["tied"], tmp_path, rollouts, scale_rewards=scaled, share_prefixes=shared, search_cost=0.1)
    loss, found = gradients(trainer, rollouts)
    rewards = torch.tensor([float(one.answer != "no") - 0.1 * one.searches for one in rollouts]).reshape(2, 4)
    shares = strengths(trainer.model, rollouts).softmax(1)
    expected = (shares * rewards).sum(1)
    spread = (shares * (rewards - expected[:, None]) ** 2).sum(1).sqrt().detach()
    deviation = spread + 1e-4 if scaled == "group" else torch.ones(2)
    tokens = torch.tensor([float(one.tokens_written) for one in rollouts]).reshape(2, 4)
    (-4 * (expected / deviation).sum() / tokens.sum()).backward()
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-5, msg=lambda told, name=name: f"{name}: {told}")
    gains = 4 * shares * (rewards - expected[:, None]) / deviation[:, None]
    assert loss == pytest.approx(-(gains * tokens).sum().item() / tokens.sum().item(), abs=1e-4)


@pytest.mark.parametrize("right", [True, False])
def test_a_tree_whose_answers_are_all_equally_right_teaches_nothing(tiny_bases, tmp_path, right):
    rollouts = trees(*[right] * 8)
    _, found = gradients(trainer_of(tiny_bases["tied"], tmp_path, rollouts), rollouts)
    assert all(gradient.abs().max() < 1e-7 for gradient in found.values())


def test_a_step_shows_the_reward_that_the_selection_expects(tiny_bases, tmp_path):
    rollouts = trees(True, False, False, False, True, True, False, False)
    trainer = trainer_of(tiny_bases["tied"], tmp_path, rollouts)
    gradients(trainer, rollouts)
    expected = (rollouts[0].share + rollouts[4].share + rollouts[5].share) / 2
    assert trainer._metrics["train"]["expected_answer"] == [pytest.approx(expected)]
