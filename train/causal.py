"""Train a causal model on encoded rows with TRL's SFTTrainer, and write the checkpoint."""

import os
from typing import Any

from refinery.errors import RecipeError
from refinery.run_dir import RunDir, check_run, open_run
from train.data import encode_rows, training_records
from train.evaluate import evaluate
from train.model import build_model, save_model
from train.recipe import TrainRecipe


def run(recipe: TrainRecipe, *, resume: bool) -> dict[str, Any]:
    """Train, save to `output_dir`, evaluate on the validation files. Returns what `metrics.json` holds."""
    # Under `accelerate launch` every process runs this; the first one owns the run directory.
    main_process = os.environ.get("RANK", "0") == "0"
    if main_process and (finished := check_run(recipe, recipe.output_dir, resume=resume)) is not None:
        return finished
    records = training_records(recipe)
    model, tokenizer = build_model(recipe)
    rows, dropped = encode_rows(records, recipe, tokenizer)
    output = open_run(recipe, recipe.output_dir, stage="train", resume=resume) if main_process else RunDir(recipe.output_dir)
    trainer = build_trainer(model, tokenizer, rows, recipe)
    result = trainer.train(resume_from_checkpoint=_last_checkpoint(recipe) if resume else None)
    train_loss = _mean_over_processes(trainer.accelerator, result.training_loss)
    if not main_process:
        return {}
    save_model(trainer.accelerator.unwrap_model(trainer.model), tokenizer, recipe, recipe.output_dir)
    metrics = {
        "rows": len(rows),
        "rows_dropped_overlong": dropped,
        "tokens": sum(len(row.input_ids) for row in rows),
        "tokens_trained": sum(label != -100 for row in rows for label in row.labels),
        "steps": trainer.state.global_step,
        "train_loss": train_loss,
        "trainable_parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
    }
    metrics |= evaluate(recipe) if recipe.validation else {}
    output.write_metrics(metrics)
    return metrics


def build_trainer(model: Any, tokenizer: Any, rows: list[Any], recipe: TrainRecipe) -> Any:
    """The SFTTrainer over our own ids and labels, checked to run on as many processes as were launched."""
    import torch
    from datasets import Dataset
    from trl import SFTConfig

    from train.supervised_head import SupervisedHeadTrainer

    on_gpu = torch.cuda.is_available()
    arguments = SFTConfig(
        output_dir=str(recipe.output_dir / "checkpoints"),
        num_train_epochs=recipe.epochs,
        max_steps=recipe.max_steps,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=recipe.lr_scheduler_type,
        warmup_steps=recipe.warmup_steps,
        weight_decay=recipe.weight_decay,
        per_device_train_batch_size=recipe.per_device_train_batch_size,
        gradient_accumulation_steps=recipe.gradient_accumulation_steps,
        train_sampling_strategy=recipe.train_sampling_strategy,
        max_length=None,  # rows are cut to length by encode_rows, which counts what it drops; TRL would cut the end silently
        bf16=recipe.dtype == "bfloat16",
        gradient_checkpointing=recipe.gradient_checkpointing,
        use_cpu=not on_gpu,
        dataloader_pin_memory=on_gpu,
        logging_steps=10,
        save_steps=recipe.save_steps,
        save_total_limit=1,
        report_to="none",
        seed=recipe.seed,
        dataset_kwargs={"skip_prepare_dataset": True},
        disable_tqdm=None if on_gpu else False,
    )
    dataset = Dataset.from_dict({"input_ids": [row.input_ids for row in rows], "labels": [row.labels for row in rows]})
    trainer = SupervisedHeadTrainer(model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer)
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if trainer.accelerator.num_processes != launched:
        raise RecipeError(
            f"{launched} processes were launched but training would run on {trainer.accelerator.num_processes}. See accelerate_configs/."
        )
    return trainer


def _mean_over_processes(accelerator: Any, loss: float) -> float:
    """The trainer's own figure holds only this process's share of the steps after the last log; the mean is the loss of all rows."""
    import torch

    return float(accelerator.reduce(torch.tensor(loss, device=accelerator.device), reduction="mean"))


def _last_checkpoint(recipe: TrainRecipe) -> str | None:
    """The newest whole checkpoint: the trainer writes trainer_state.json last, so one without it was cut short."""
    whole = [state.parent for state in (recipe.output_dir / "checkpoints").glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]))) if whole else None
