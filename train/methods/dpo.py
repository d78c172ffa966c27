"""DPO (Rafailov et al. 2023) on pairs of paths, through TRL's trainer: of two paths of one tree the generator learns to find the right one
likelier. A path is written as training and inference write it, and only what the model wrote itself counts: evidence is masked, as in
`refinement`. The reference is the base, that is the model without its new adapter."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.records import Preference
from refinery.contract.segments import encode
from refinery.contract.tokenizer import Tokenizer
from refinery.tasks.base import PairTask
from train.families.model import build_model, save_model
from train.method import Family, Method
from train.recipe import TrainRecipe
from train.rows.data import held_out_records, row_segments
from train.rows.length_filter import fit_rows
from train.rows.pairs import PreferenceRow
from train.settings import TrainSettings
from train.trainers.arguments import trainer_arguments

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

__all__ = ["METHOD", "build_model", "build_trainer", "encode_rows", "save_model"]


def encode_rows(records: Sequence[Preference], recipe: TrainRecipe, tokenizer: Tokenizer) -> tuple[list[PreferenceRow], dict[str, Any]]:
    """Pairs whose paths are both at most `max_length` long, and what was done with the others. Raises as `fit_rows`."""

    def encode_pair(record: Preference) -> PreferenceRow:
        chosen, rejected = (encode(row_segments(path, recipe, tokenizer), tokenizer) for path in (record.chosen, record.rejected))
        return PreferenceRow(chosen, rejected)

    rows: list[PreferenceRow] = []
    return rows, fit_rows(records, recipe, encode_pair, rows.append)


def build_trainer(model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, rows: list[PreferenceRow], recipe: TrainRecipe) -> Any:
    """TRL's DPOTrainer over our own ids."""
    from trl.trainer.dpo_config import DPOConfig

    from train.trainers.preference import PreferenceCollator, PreferenceTrainer, build_dataset

    held_out = held_out_records(recipe)
    trainer = PreferenceTrainer(
        model=model,
        recipe=recipe,
        args=DPOConfig(
            **trainer_arguments(recipe),
            beta=recipe.beta,
            loss_type=["sigmoid", "sft"] if recipe.rpo_alpha else ["sigmoid"],
            loss_weights=[1.0, recipe.rpo_alpha] if recipe.rpo_alpha else None,
            max_length=None,  # pairs were fitted by train/rows/length_filter.py
            remove_unused_columns=False,  # TRL would drop the masks
        ),
        data_collator=PreferenceCollator(tokenizer.pad_token_id),
        train_dataset=build_dataset(rows),
        eval_dataset=build_dataset(encode_rows(held_out, recipe, tokenizer)[0]) if held_out else None,
        processing_class=tokenizer,
    )
    # TRL keeps a copy of the adapter as the reference. Ours is new and has no effect yet, so the model without it is the same.
    model.delete_adapter("ref")
    return trainer


def _family(recipe: TrainSettings) -> Family:
    return cast(Family, sys.modules[__name__])


METHOD = Method(_family, learns_from=(PairTask,))
