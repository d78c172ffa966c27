"""What a run's numbers depend on, by content rather than by name: questions, corpus, prompts and model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from infer.recipe import InferRecipe
from refinery.fingerprint import file_fingerprint, text_fingerprint
from refinery.llms.hub_files import split_revision
from refinery.passages.corpus import corpus_hash as passages_hash
from refinery.prompts.render import rendered_prompts
from refinery.records import Question
from refinery.retrievers.base import Retriever, read_passages


def provenance(recipe: InferRecipe, questions: Sequence[Question], retriever: Retriever | None) -> dict[str, Any]:
    """For `metrics.json`. `corpus_hash` is null without a retriever, and where nobody can know what it searches (the web)."""
    return {
        "decoder": recipe.decoder,
        "questions_hash": questions_hash(questions),
        "retriever": recipe.retriever.name if recipe.retriever else None,
        "corpus_hash": corpus_hash(recipe, questions, retriever),
        "passages_per_query": recipe.passages_per_query if recipe.retriever else None,
        "prompts": rendered_prompts(),
        "model": _model(recipe),
    }


def questions_hash(questions: Iterable[Question]) -> str:
    """Of ids, texts and gold answers, in any order: scores over questions of equal hash can be compared."""
    return text_fingerprint(sorted(question.model_dump_json(include={"id", "text", "answers"}) for question in questions))


def corpus_hash(recipe: InferRecipe, questions: Sequence[Question], retriever: Retriever | None) -> str | None:
    """The same for every retriever over one corpus: of the passages, in memory or in an index, or of the questions' own."""
    config = recipe.retriever
    if config is None:
        return None
    if config.passages:
        return passages_hash(read_passages(config.passages))
    if config.name == "candidates":
        return text_fingerprint(sorted(p.model_dump_json() for question in questions for p in question.passages or []))
    return getattr(retriever, "corpus_hash", None)


def _model(recipe: InferRecipe) -> dict[str, Any]:
    """The model's name and revision, and those of its adapters."""
    if recipe.llm is None:
        assert recipe.endpoint is not None, "a recipe has one of the two"
        return {"name": recipe.endpoint.model, "revision": None}
    adapters = {role: {"name": path, "revision": _revision(path)} for role, path in recipe.llm.adapters.items()}
    return {"name": recipe.llm.base, "revision": _revision(recipe.llm.base), **({"adapters": adapters} if adapters else {})}


def _revision(name: str) -> str | None:
    """Of a folder the fingerprint of its weights, of a hub's model the commit that the cache holds."""
    if Path(name).is_dir():
        return file_fingerprint(*sorted(Path(name).glob("*.safetensors")))
    from huggingface_hub import try_to_load_from_cache

    repository, revision = split_revision(name)
    cached = [try_to_load_from_cache(repository, file, revision=revision) for file in ("config.json", "adapter_config.json")]
    return next((Path(path).parent.name for path in cached if isinstance(path, str)), None)
