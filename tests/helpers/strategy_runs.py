"""A short training run of any strategy over a tiny Llama, and what it is compared by."""

import torch

from refinery.contract.records import KnowledgeLabel, Passage, Step, Trajectory
from train.families.causal import build_trainer
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe
from train.rows.data import encode_rows, training_records

NAMES = ("Dune", "Golden Harbor", "The Iron Raven", "Silent Valley")
TRAJECTORIES = [
    Trajectory(
        question_id=name,
        question=f"Who directed {name}?",
        steps=[
            Step(
                action="rewrite",
                text=f"director of film {name}",
                passages=[Passage(id="1", title=name, text=f"{name} [A_Response] is a film.")],
            ),
            Step(action="answer", text=f"Maria {name}"),
        ],
    )
    for name in NAMES
]
LABELS = [KnowledgeLabel(question_id=str(i), question=f"Who made {name}?", label=("know", "unknow")[i % 2]) for i, name in enumerate(NAMES)]


def trained(recipe: TrainRecipe):
    """(model, tokenizer, rows, names of the parameters that moved) after a short training run, saved to the recipe's folder."""
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(training_records(recipe), recipe, tokenizer)
    trainer = build_trainer(model, tokenizer, rows, recipe)
    before = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    trainer.train()
    moved = {name for name, parameter in trainer.model.named_parameters() if not torch.equal(parameter, before[name])}
    save_model(trainer.model, tokenizer, recipe, recipe.output_dir)
    return trainer.model, tokenizer, rows, moved


def logits(model, rows) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [model.eval()(input_ids=torch.tensor([row.input_ids])).logits.float() for row in rows]


def assert_close(ours, theirs) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
