"""Check whose knowledge a self-knowledge judge was trained on: RA-ISF labels what the answering model itself knows (App. A.1)."""

import logging

from infer.recipe import PipelineRecipe
from refinery.hub.model_card import DATA_FILE
from refinery.llms.build import ModelConfig
from refinery.llms.weights.checkpoint import read_adapter_config
from refinery.llms.weights.hub_files import read_small_json

logger = logging.getLogger(__name__)

_ROLE = "self_knowledge"


def warn_of_another_models_labels(recipe: PipelineRecipe) -> None:
    """Log a warning if the self-knowledge judge was trained on labels of a different model than the one that answers here."""
    judge = recipe.sub_models.get(_ROLE)
    path = judge.base if isinstance(judge, ModelConfig) else recipe.llm.adapters.get(_ROLE) if recipe.llm and judge is None else None
    labeled = _labeled_models(path) if path else set()
    answering = _names_of_answering_model(recipe)
    if labeled and not labeled & answering:
        logger.warning(
            "sub-model '%s' was trained on labels of what %s knows, but %s answers here. Label with the answering model as `target`.",
            path,
            " and ".join(sorted(labeled)),
            min(answering),
        )


def _labeled_models(path: str) -> set[str]:
    """The models that answered the questions when the labels were made; none if the checkpoint does not describe its data."""
    data = read_small_json(path, DATA_FILE) or {}
    models = [(made.get("made_by") or {}).get("models", {}) for made in data.get("files", [])]
    return {name for of in models for name in (of.get("target") or of.get("target_endpoint") or of.get("teacher") or [])}


def _names_of_answering_model(recipe: PipelineRecipe) -> set[str]:
    if recipe.llm is None:
        return {recipe.endpoint.model} if recipe.endpoint else set()
    adapter = read_adapter_config(recipe.llm.base) or {}
    return {recipe.llm.base, adapter.get("base_model_name_or_path", recipe.llm.base)}
