"""The encoder family (BERT and similar) for the judges: one forward pass separates know from unknow, or right from wrong.

RA-ISF Sec. 5.4 asks how small a sub-model can be; an encoder reads a pair of question and passage at about a hundredth of a 7B's cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.records import JudgeLabel
from refinery.contract.tokenizer import Tokenizer
from refinery.llms.engine.classifier import encode_pair
from refinery.prompts.render import Prompt
from refinery.tasks.base import Judge
from train.families.model import build_model as build_any_model
from train.families.model import save_model
from train.recipe import TrainRecipe
from train.rows.data import held_out_records, labels_of
from train.rows.length_filter import fit_rows
from train.trainers.arguments import trainer_arguments

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["build_model", "build_trainer", "encode_rows", "save_model"]


@dataclass(frozen=True, slots=True)
class ClassifierRow:
    """The encoder's input, its segment ids if it has any, and the index of the one label that carries the loss."""

    input_ids: list[int]
    token_type_ids: list[int] | None
    labels: list[int]
    question_id: str

    def inputs(self) -> dict[str, Any]:
        """The arguments of the model's forward pass."""
        segments = {} if self.token_type_ids is None else {"token_type_ids": self.token_type_ids}
        return {"input_ids": self.input_ids, "attention_mask": [1] * len(self.input_ids), "labels": self.labels[0], **segments}


def build_model(recipe: TrainRecipe) -> tuple["PreTrainedModel | PeftModel", Tokenizer]:
    """(model, tokenizer) as in every family. Raises RecipeError when `max_length` is more than the encoder's positions.

    The tokenizer keeps `max_length`, so that inference shortens passages to the trained length.
    """
    import torch

    torch.manual_seed(recipe.seed)  # the head is initialized here, before the trainer sets its seed
    model, tokenizer = build_any_model(recipe)
    positions = model.config.max_position_embeddings
    if recipe.max_length > positions:
        message = f"{recipe.base} has {positions:,} positions (got {recipe.max_length:,}). Set it to at most {positions}."
        raise recipe.fault("max_length", message)
    tokenizer.model_max_length = recipe.max_length
    return model, tokenizer


def encode_rows(records: Sequence[Any], recipe: TrainRecipe, tokenizer: Tokenizer) -> tuple[list[ClassifierRow], dict[str, Any]]:
    """Rows that can be trained on, and the treatment of the others. Raises the errors of `fit_rows`."""
    labels = labels_of(recipe)
    rows: list[ClassifierRow] = []
    return rows, fit_rows(records, recipe, lambda record: _encode(record, labels, recipe, tokenizer), rows.append)


def _encode(record: JudgeLabel, labels: tuple[str, ...], recipe: TrainRecipe, tokenizer: Tokenizer) -> ClassifierRow:
    task = recipe.learned
    prompt = task.prompt(record) if isinstance(task, Judge) else None
    if not isinstance(prompt, Prompt) or prompt.pair is None:
        message = f"classifier reads a pair of texts; task '{recipe.task}' has none. `Prompt.paired` gives a prompt one."
        raise recipe.fault("family", message)
    encoded = encode_pair(*prompt.pair, tokenizer)
    return ClassifierRow(encoded["input_ids"], encoded.get("token_type_ids"), [labels.index(record.label)], record.question_id)


def build_trainer(model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, rows: list[ClassifierRow], recipe: TrainRecipe) -> Any:
    """The Trainer over the rows; the loss is the mean over the rows of a step."""
    from datasets import Dataset
    from transformers import DataCollatorWithPadding, TrainingArguments

    from train.trainers.generative_eval import ScoredTrainer, mean_cross_entropy
    from train.trainers.rows_apart import CheckPadding

    records = held_out_records(recipe)
    held_out = encode_rows(records, recipe, tokenizer)[0] if records else []
    trainer = ScoredTrainer(
        model=model,
        recipe=recipe,
        args=TrainingArguments(**trainer_arguments(recipe)),
        data_collator=DataCollatorWithPadding(cast("PreTrainedTokenizerBase", tokenizer)),
        train_dataset=Dataset.from_list([row.inputs() for row in rows]),
        eval_dataset=Dataset.from_list([row.inputs() for row in held_out]) if held_out else None,
        processing_class=tokenizer,
        compute_loss_func=mean_cross_entropy,
    )
    trainer.add_callback(CheckPadding(rows, recipe, tokenizer.pad_token_id))
    return trainer
