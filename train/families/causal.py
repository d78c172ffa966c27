"""The causal family (Llama 2 and 3): TRL's SFTTrainer on our own ids and labels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from refinery.contract.segments import EncodedRow
from refinery.contract.tokenizer import Tokenizer
from train.families.adapter import keep_trained_in_float32
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe
from train.rows.data import encode_rows, held_out_records
from train.trainers.arguments import trainer_arguments

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

__all__ = ["build_model", "build_trainer", "encode_rows", "save_model"]


def build_trainer(model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, rows: Sequence[EncodedRow], recipe: TrainRecipe) -> Any:
    """The trainer over our own ids and labels. Joined rows get the attention that they need."""
    from trl.trainer.sft_config import SFTConfig

    from train.rows.document_attention import register
    from train.rows.packing import PackingCollator, build_dataset
    from train.trainers.rows_apart import KeepRowsApart
    from train.trainers.sparse_lm_head import SupervisedHeadTrainer

    joined = recipe.packing or recipe.padding_free
    if joined and recipe.attn_implementation == "sdpa":
        model.set_attn_implementation(register())
    arguments = SFTConfig(
        **trainer_arguments(recipe),
        max_length=None,  # rows were fitted by train/rows/length_filter.py, which counts what it drops; TRL would cut the end silently
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,  # TRL would drop the kinds
    )
    held_out = held_out_records(recipe)
    trainer = SupervisedHeadTrainer(
        model=model,
        recipe=recipe,
        args=arguments,
        data_collator=PackingCollator(tokenizer.pad_token_id, joined),
        train_dataset=build_dataset(rows, bin_length=recipe.max_length if recipe.packing else None),
        eval_dataset=build_dataset(encode_rows(held_out, recipe, tokenizer)[0]) if held_out else None,
        processing_class=tokenizer,
        loss_weights={kind: weight for kind, weight in recipe.loss_weights.items() if weight},  # 0 is masked in the rows
    )
    if joined:
        trainer.add_callback(KeepRowsApart(rows, recipe))
    if recipe.strategy == "qlora":
        keep_trained_in_float32(model)  # SFTTrainer has cast it down
    return trainer
