"""How many questions, rollouts and steps a run with `method: grpo` has."""

from dataclasses import dataclass

from refinery.errors import RecipeError
from train.launch.launch import Launch
from train.settings import TrainSettings


@dataclass(frozen=True, slots=True)
class RolloutSteps:
    """`batches` of each process are sampled at once, a generation, which `steps` optimizer steps share out."""

    questions_per_generation: int
    rollouts_per_generation: int
    batches: int
    generations: int
    steps: int


def rollout_steps(recipe: TrainSettings, launch: Launch, *, questions: int) -> RolloutSteps:
    """The steps of `epochs` over so many questions, or `max_steps`. Raises RecipeError for groups that do not fit in a batch."""
    settings = recipe.grpo
    batches = settings.steps_per_generation or recipe.gradient_accumulation_steps
    of_process = recipe.per_device_train_batch_size * batches
    rollouts, size = of_process * launch.processes, settings.num_generations
    sampled = f"{recipe.per_device_train_batch_size} x {batches} x {launch.processes} processes"
    if rollouts % size or (settings.siblings > 1 and of_process % size):
        whole = " in each process, because siblings share its engine" if settings.siblings > 1 else ""
        raise RecipeError(
            f"{recipe.where}: grpo.num_generations: {rollouts:,} rollouts are sampled at once ({sampled}), which should be a multiple of "
            f"{size}{whole}. Change per_device_train_batch_size or gradient_accumulation_steps."
        )
    asked = rollouts // size
    if asked > questions:
        raise RecipeError(
            f"{recipe.where}: a step asks {asked:,} questions ({sampled} rollouts, {size} of each), and data has {questions:,}. "
            "Name more files, or lower gradient_accumulation_steps."
        )
    steps = batches * settings.num_iterations // recipe.gradient_accumulation_steps
    wanted = -(-recipe.max_steps // steps) if recipe.max_steps > 0 else max(1, int(recipe.epochs * questions) // asked)
    return RolloutSteps(asked, rollouts, batches, wanted, recipe.max_steps if recipe.max_steps > 0 else wanted * steps)
