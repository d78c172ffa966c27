"""Retrievers out of their configuration: options checked, the corpus opened, an index tested, equal searches shared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refinery.retrievers.base import RETRIEVERS, IndexedRetriever, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.index.manifest import check_name, read_manifest, self_test
from refinery.retrievers.search.cache import CachedRetriever
from refinery.runtime.recipe import apply_overrides, build_recipe, load_recipe
from refinery.runtime.recipes import plugins


def load_retriever_config(path: Path, overrides: Sequence[str] = ()) -> RetrieverConfig:
    """The configuration in a retriever's recipe or in an index folder. Raises RecipeError with one line per fault."""
    if not path.is_dir():
        return load_recipe(path, RetrieverConfig, overrides)
    names_retriever = any(override.startswith("name=") for override in overrides)
    values = apply_overrides(index_values(path, names_retriever=names_retriever), overrides, where=str(path))
    return build_recipe(values, RetrieverConfig, where=str(path))


def index_values(folder: Path, *, names_retriever: bool = False) -> dict[str, Any]:
    """The configuration of an index folder. An index from elsewhere must not choose which code runs: unless the caller passes
    `names_retriever`, its retriever must be an installed one, else PluginError is raised."""
    name = read_manifest(folder).name
    if not names_retriever:
        plugins.find_installed(RETRIEVERS, name)
    return {"name": name, "index": str(folder)}


def build_retriever(config: RetrieverConfig) -> CachedRetriever:
    """The configured retriever over its corpus. Equal searches run only once.

    Raises RecordError for a corpus that cannot be read, RetrievalError for an index that has changed, and RecipeError for a wrong option.
    """
    where, built = f"retriever '{config.name}'", load_plugin(config).build(config, retriever_options(config))
    with config.at("name"):
        retriever = plugins.checked(built, Retriever, where)
    if config.index:
        self_test(config.index, plugins.checked(retriever, IndexedRetriever, where))
    if config.cache and retriever.revision is None:
        raise config.fault("cache", f"{config.name} has no revision, or its hits depend on the question. Leave it out.")
    return CachedRetriever(retriever, config.cache)


def load_plugin(config: RetrieverConfig) -> RetrieverPlugin:
    """The plugin that the configuration names. Raises PluginError."""
    with config.at("name"):
        return plugins.find(RETRIEVERS, config.name)


def retriever_options(config: RetrieverConfig) -> Any:
    """The retriever's validated options. For options that the recipe leaves out, those of the index are used.

    Raises RecipeError for an unknown or wrong option, PluginError for an unknown retriever, RetrievalError for another retriever's index.
    """
    plugin, values = load_plugin(config), config.options
    if config.index:
        manifest = read_manifest(config.index)
        check_name(config.index, manifest, config.name)
        values = manifest.options | values
    return build_recipe(values, plugin.options, where=config.where, part=config.key_of("options"))
