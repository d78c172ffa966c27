"""The pipeline in which the model in training plays its part, and what of it is refused when the recipe is read."""

from typing import Any, cast

from infer.decoders.rq_rag import Options, nodes_by_depth
from infer.recipe import PipelineRecipe
from refinery.llms.build import ModelConfig
from refinery.metrics.registry import find_metric
from train.rollout_settings import Rollouts
from train.settings import TrainSettings

DECOMPOSITION = "decomposition"
_DECODERS = {"refinement": "rq_rag", DECOMPOSITION: "ra_isf"}
# How a generator is decoded, with the prefix of its scores.
_SYSTEMS: dict[str, tuple[str, dict[str, bool]]] = {"path": ("", {"adaptive": True}), "tree": ("tree_", {"adaptive": False})}
_OF_THE_RECIPE = ("format", "system_prompt")  # a generator's options that it is trained with


def pipeline_recipe(recipe: TrainSettings, trained: ModelConfig, **options: Any) -> PipelineRecipe:
    """The recipe's rollouts with `trained` in its role. `options` override the decoder's."""
    rollouts = rollouts_of(recipe)
    values = {name: getattr(rollouts, name) for name in PipelineRecipe.model_fields}
    if recipe.task == DECOMPOSITION:
        values["sub_models"] = {**rollouts.sub_models, DECOMPOSITION: trained}
    else:
        values["llm"] = trained
        options = {name: getattr(recipe, name) for name in _OF_THE_RECIPE} | options
    values["options"] = rollouts.options | options
    return PipelineRecipe.model_validate(values).read_from(recipe.where, "rollouts")


def shares_prefixes(recipe: TrainSettings) -> bool:
    """Whether rollouts are computed over shared prefixes: rows of several texts are only kept apart by the mask of these."""
    return recipe.grpo.share_prefixes or recipe.task == DECOMPOSITION


def tree_options(recipe: TrainSettings) -> Options:
    """The options with which a generator's whole tree is grown."""
    pipeline = pipeline_recipe(recipe, ModelConfig(base=recipe.base), **system(recipe, "tree_"))
    return cast(Options, pipeline.decoder_options(recipe.where))


def system(recipe: TrainSettings, prefix: str) -> dict[str, bool]:
    """The decoder's options for the way to decode whose scores have this prefix."""
    return {} if recipe.task == DECOMPOSITION else dict(_SYSTEMS.values())[prefix]


def systems(recipe: TrainSettings) -> dict[str, dict[str, bool]]:
    """How the trained model is decoded for its evaluation: the decoder's options, by the prefix of its scores."""
    return {"": {}} if recipe.task == DECOMPOSITION else dict(_SYSTEMS[name] for name in recipe.grpo.evaluate)


def evaluated(recipe: TrainSettings) -> list[str]:
    """The scores of which the best checkpoint may have the highest."""
    return [f"{prefix}answer_score" for prefix in systems(recipe)]


def rollouts_of(recipe: TrainSettings) -> Rollouts:
    """The recipe's rollouts. Raises RecipeError where there are none."""
    if recipe.rollouts is None:
        raise recipe.fault("rollouts", "is missing, and method grpo needs it: a retriever and the decoder's options, as for infer.")
    return recipe.rollouts


def check_rollouts(recipe: TrainSettings) -> None:
    """Raise RecipeError for rollouts that the task cannot have, and for what their pipeline refuses."""
    rollouts = rollouts_of(recipe)
    if recipe.task not in _DECODERS:
        raise recipe.fault("task", f"'{recipe.task}' is not learned by grpo, which trains {' and '.join(_DECODERS)}.")
    if rollouts.decoder != _DECODERS[recipe.task]:
        raise rollouts.fault("decoder", f"'{rollouts.decoder}' has no part for task {recipe.task}. Use {_DECODERS[recipe.task]}.")
    _check_models(recipe, rollouts)
    if rollouts.temperature:
        raise rollouts.fault("temperature", "is what answers are decoded with. Set grpo.temperature, with which rollouts are sampled.")
    if fixed := [name for name in _OF_THE_RECIPE if name in rollouts.options]:
        raise rollouts.fault(f"options.{fixed[0]}", f"is what the model is trained with. Set the recipe's own `{fixed[0]}`.")
    settings = recipe.grpo
    _check_selection(recipe)
    with settings.at("metric"):
        reads = find_metric(settings.metric).reads
    if reads != "answer":
        raise settings.fault("metric", f"'{settings.metric}' scores {reads}, and a rollout's answer is rewarded. Use em.squad or f1.squad.")
    accumulated = recipe.gradient_accumulation_steps
    if (settings.steps_per_generation or accumulated) % accumulated:
        raise settings.fault("steps_per_generation", f"should be a multiple of gradient_accumulation_steps, {accumulated}.")
    if recipe.beta != type(recipe).model_fields["beta"].default:
        raise recipe.fault("beta", "is DPO's. Set grpo.beta, the weight of the KL divergence.")
    if recipe.metric_for_best_model not in (None, *evaluated(recipe)):
        raise recipe.fault("metric_for_best_model", f"is not measured. Use {' or '.join(evaluated(recipe))}, or change grpo.evaluate.")
    pipeline = pipeline_recipe(recipe, ModelConfig(base=recipe.base))
    pipeline.check(recipe.where)
    if pipeline.found_decoder().needs_retriever and pipeline.retriever is None:
        raise rollouts.fault("retriever", f"is missing, and decoder '{rollouts.decoder}' needs it.")


def _check_models(recipe: TrainSettings, rollouts: Rollouts) -> None:
    named = [name for name in ("llm", "endpoint", "sub_models") if getattr(rollouts, name)]
    if recipe.task != DECOMPOSITION:
        if named:
            raise rollouts.fault(named[0], "the generator in training answers alone. Leave it out.")
        return
    if (rollouts.llm is None) == (rollouts.endpoint is None):
        raise rollouts.fault("llm", "RA-ISF's other parts need a model: name one of `llm` (on this machine) and `endpoint` (a server).")
    if DECOMPOSITION in {**rollouts.sub_models, **(rollouts.llm or rollouts.model).adapters}:
        raise rollouts.fault("sub_models", f"the model in training plays the role '{DECOMPOSITION}'. Leave it out.")


def _check_selection(recipe: TrainSettings) -> None:
    settings, rollouts = recipe.grpo, rollouts_of(recipe)
    if settings.learn != "selection":
        return
    if recipe.task == DECOMPOSITION:
        raise settings.fault("learn", "selection is of RQ-RAG's tree, and RA-ISF has none. Use task: refinement.")
    if settings.search_budget is not None:
        raise settings.fault("search_budget", "is for paths that the model ends itself; a tree always has the same searches. Leave it out.")
    options = tree_options(recipe)
    if (options.selection, options.fidelity) != ("ensemble", "fixed"):
        given = f"{options.selection} with fidelity {options.fidelity}"
        raise rollouts.fault("options.selection", f"{given} has no shares that actions change. Use ensemble with fidelity fixed.")
    paths = sum(nodes_by_depth(options))
    if paths < 2:
        raise rollouts.fault("options.max_depth", f"{options.max_depth} gives a tree of one path, and nothing to select. Raise it.")
    if settings.num_generations != paths:
        raise settings.fault("num_generations", f"is {settings.num_generations}, and the tree has {paths} paths. Set it to {paths}.")
    sampled = {"branching": [], "temperature": 1.0}
    if changed := [name for name, value in sampled.items() if getattr(settings, name) != value]:
        raise settings.fault(changed[0], "is of sampled paths, and the selection is learned from the decoder's tree. Leave it out.")
    if settings.loss_type == "grpo":
        raise settings.fault("loss_type", "grpo divides each path by its length, which the selection does not. Use dapo.")
    if settings.scale_rewards == "batch":
        raise settings.fault("scale_rewards", "batch is not that of one selection. Use group or none.")
