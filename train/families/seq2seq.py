"""The encoder-decoder family (T5, Flan-T5): the encoder reads the prompt, and the decoder writes the trained text.

A trajectory gives one row per step: the encoder reads everything before it, evidence included, and the decoder writes the step. So text
that the runtime inserts is never a target. Control tokens keep their names instead of `<extra_id_0>`, which T5 was pretrained with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.records import Trajectory
from refinery.contract.segments import Segment, SegmentKind, check_writable, encode_segment
from refinery.contract.tokenizer import Tokenizer
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe
from train.rows.data import held_out_records, row_segments, split_steps
from train.rows.length_filter import fit_rows
from train.trainers.arguments import trainer_arguments

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["build_model", "build_trainer", "encode_rows", "save_model"]


@dataclass(frozen=True, slots=True)
class Seq2SeqRow:
    """The encoder's input, the decoder's target, and the kind of each target token. Input and target both end in `</s>`."""

    input_ids: list[int]
    labels: list[int]
    kinds: list[SegmentKind]
    question_id: str

    def inputs(self) -> dict[str, Any]:
        """The arguments of the model's forward pass."""
        return {"input_ids": self.input_ids, "attention_mask": [1] * len(self.input_ids), "labels": self.labels}


def encode_rows(records: Sequence[Any], recipe: TrainRecipe, tokenizer: Tokenizer) -> tuple[list[Seq2SeqRow], dict[str, Any]]:
    """Rows whose encoder text is within `max_length`, and the treatment of the others. Raises the errors of `fit_rows`."""
    targets = [target for record in records for target in _targets(record)]
    rows: list[Seq2SeqRow] = []
    return rows, fit_rows(targets, recipe, lambda record: _encode(record, recipe, tokenizer), rows.append)


def _targets(record: Any) -> list[Any]:
    """The record itself, or one trajectory for each step, which ends with it."""
    if not isinstance(record, Trajectory):
        return [record]
    return [record.model_copy(update={"steps": record.steps[:stop]}) for stop in range(1, len(record.steps) + 1)]


def _encode(record: Any, recipe: TrainRecipe, tokenizer: Tokenizer) -> Seq2SeqRow:
    segments = row_segments(record, recipe, tokenizer)
    if isinstance(record, Trajectory):
        steps = split_steps(segments, recipe, tokenizer)
        read = [segment for before, step in steps[:-1] for segment in (*before, *step)] + steps[-1][0]
        written = [*steps[-1][1], Segment(tokenizer.eos_token, "control_token", trained=True)]
    else:
        read, written = segments[:1], segments[1:]
    check_writable(written, tokenizer)  # such as `{` in T5's vocabulary: the model would learn to write `<unk>`
    encoded = [(segment, encode_segment(segment, tokenizer)) for segment in written]
    return Seq2SeqRow(
        input_ids=[token for segment in read for token in encode_segment(segment, tokenizer)] + [tokenizer.eos_token_id],
        labels=[token for _, token_ids in encoded for token in token_ids],
        kinds=[segment.kind for segment, token_ids in encoded for _ in token_ids],
        question_id=record.question_id,
    )


def build_trainer(model: "PreTrainedModel | PeftModel", tokenizer: Tokenizer, rows: list[Seq2SeqRow], recipe: TrainRecipe) -> Any:
    """The Seq2SeqTrainer over the rows; the loss is the mean over all target tokens of a step, as in the causal family."""
    from datasets import Dataset
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainingArguments

    from train.trainers.generative_eval import ScoredSeq2SeqTrainer, mean_cross_entropy

    records = held_out_records(recipe)
    held_out = encode_rows(records, recipe, tokenizer)[0] if records else []
    return ScoredSeq2SeqTrainer(
        model=model,
        recipe=recipe,
        args=Seq2SeqTrainingArguments(**trainer_arguments(recipe)),
        data_collator=DataCollatorForSeq2Seq(cast("PreTrainedTokenizerBase", tokenizer), model=model),
        train_dataset=Dataset.from_list([row.inputs() for row in rows]),
        eval_dataset=Dataset.from_list([row.inputs() for row in held_out]) if held_out else None,
        processing_class=tokenizer,
        compute_loss_func=mean_cross_entropy,
    )
