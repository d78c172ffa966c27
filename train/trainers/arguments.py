"""The arguments and the optimizer that every family's trainer shares."""

from typing import Any

from train.recipe import TrainRecipe


def trainer_arguments(recipe: TrainRecipe) -> dict[str, Any]:
    """The keywords of TrainingArguments that do not depend on the family; each family adds its own."""
    import torch

    on_gpu = torch.cuda.is_available()
    if recipe.dtype == "float16" and not on_gpu:
        raise recipe.fault("dtype", "float16 is trained on GPUs only, such as T4 and V100. Use float32 or bfloat16 here.")
    return {
        "output_dir": str(recipe.output_dir / "checkpoints"),
        "num_train_epochs": recipe.epochs,
        "max_steps": recipe.max_steps,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": recipe.lr_scheduler_type,
        "warmup_steps": recipe.warmup_steps,
        "weight_decay": recipe.weight_decay,
        "optim": recipe.optim,
        "max_grad_norm": recipe.max_grad_norm,
        "torch_compile": recipe.torch_compile,
        "per_device_train_batch_size": recipe.per_device_train_batch_size,
        "gradient_accumulation_steps": recipe.gradient_accumulation_steps,
        "train_sampling_strategy": recipe.train_sampling_strategy,
        "bf16": recipe.dtype == "bfloat16",
        "fp16": recipe.dtype == "float16",  # of a frozen base, whose adapter is in float32
        "gradient_checkpointing": recipe.recomputed_share > 0,  # of which layers: train/planning/recomputation.py
        # All that an adapter trains takes part in every step; transformers would look for unused weights after each one.
        "ddp_find_unused_parameters": None if recipe.strategy == "full" else False,
        "use_cpu": not on_gpu,
        "dataloader_pin_memory": on_gpu,
        "logging_steps": recipe.logging_steps,
        "logging_nan_inf_filter": False,  # it would hide what train/launch/callbacks.py stops at
        "save_steps": recipe.save_steps,
        "save_total_limit": recipe.save_total_limit,
        **_evaluation(recipe),
        "report_to": [*recipe.report_to] or "none",
        "run_name": str(recipe.output_dir),  # trackio adds to an earlier run of the same name
        "seed": recipe.seed,
        "disable_tqdm": True,  # train/launch/progress_lines.py shows the steps
    }


def use_loraplus(trainer: Any, recipe: TrainRecipe) -> None:
    """Give the trainer AdamW with two learning rates, as its own arguments configure AdamW otherwise.

    LoRA+ (Hayou et al. 2024): the adapter's B matrices learn faster than its A matrices.
    """
    from peft.optimizers import create_loraplus_optimizer
    from transformers import Trainer

    assert recipe.loraplus_lr_ratio is not None, "asked for by this key"
    optimizer_class, options = Trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)
    trainer.optimizer = create_loraplus_optimizer(
        trainer.model,
        optimizer_class,
        loraplus_lr_ratio=recipe.loraplus_lr_ratio,
        loraplus_weight_decay=recipe.weight_decay,
        **options,
    )


def _evaluation(recipe: TrainRecipe) -> dict[str, Any]:
    """When the model in training is scored, and which score chooses the checkpoint that is kept."""
    if recipe.eval_steps is None:
        return {}
    arguments: dict[str, Any] = {
        "eval_strategy": "steps",
        "eval_steps": recipe.eval_steps,
        "per_device_eval_batch_size": recipe.per_device_train_batch_size,
    }
    if recipe.metric_for_best_model is None:
        return arguments
    return arguments | {
        "load_best_model_at_end": True,
        "metric_for_best_model": f"eval_{recipe.metric_for_best_model}",
        "greater_is_better": recipe.metric_for_best_model != "ece",
        "save_steps": recipe.eval_steps,  # a scored checkpoint must be saved, so that it can be restored
    }
