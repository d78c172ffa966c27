"""LoRA+ (Hayou et al. 2024): the adapter's B matrices learn faster than its A matrices. PEFT groups the parameters."""

from typing import Any

from train.recipe import TrainRecipe


def use_loraplus(trainer: Any, recipe: TrainRecipe) -> None:
    """Give the trainer AdamW with two learning rates, as its own arguments configure AdamW otherwise."""
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
