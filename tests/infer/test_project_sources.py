"""`refinery.load` of a project: the recipe that it serves, from any working directory."""

import asyncio
from pathlib import Path

import pytest

import refinery
from infer.recipe_sources import recipe_of
from refinery import Passage, RefineryError
from refinery.contract.records import write_records

PROJECT_FILE = """values:
  base: refinery/demo/checkpoint
  teacher: {base_url: 'http://127.0.0.1:9/v1', model: runs/teacher}
steps:
  answers: {command: [infer, recipes/rag.yaml]}
serve: recipes/rag.yaml
"""
RAG = """decoder: rag
questions: [runs/questions/test.jsonl]
output_dir: runs/answers
llm: {base: "${base}"}
retriever: {name: bm25, passages: runs/passages.jsonl}
passages_per_query: 1
max_new_tokens: 8
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with passages, and a working directory elsewhere."""
    folder = tmp_path / "handbook"
    (folder / "recipes").mkdir(parents=True)
    (folder / "runs").mkdir()
    (folder / "refinery.yaml").write_text(PROJECT_FILE)
    (folder / "recipes" / "rag.yaml").write_text(RAG)
    write_records(folder / "runs" / "passages.jsonl", [Passage(id="1", title="Dune", text="Dune is a film directed by Maria Dune.")])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


def test_a_project_answers_from_any_working_directory(project: Path) -> None:
    with refinery.load(project) as pipeline:
        prediction = pipeline.ask("Who directed Dune?")
    assert [passage.title for passage in prediction.trace[0].passages or ()] == ["Dune"]


def test_a_project_is_loaded_inside_a_running_loop(project: Path) -> None:
    async def ask() -> str | None:
        async with await refinery.aload(project) as pipeline:
            return (await pipeline.aask("Who directed Dune?")).answer

    assert asyncio.run(ask()) is not None


def test_its_other_recipes_are_found_as_well_and_changes_are_those_of_the_caller(project: Path) -> None:
    recipe = recipe_of(project / "recipes" / "rag.yaml", {"retriever.passages": "mine.jsonl"})
    assert recipe.retriever is not None
    assert recipe.retriever.passages == Path("mine.jsonl")


def test_the_name_of_a_served_model_is_no_path(project: Path) -> None:
    (project / "recipes" / "rag.yaml").write_text("decoder: direct\nendpoint: ${teacher}\n")
    endpoint = recipe_of(project, {}).endpoint
    assert endpoint is not None
    assert endpoint.model == "runs/teacher"


def test_a_project_that_serves_nothing_says_so(project: Path) -> None:
    (project / "refinery.yaml").write_text(PROJECT_FILE.replace("serve: recipes/rag.yaml\n", ""))
    with pytest.raises(RefineryError, match="names no recipe to `serve`"):
        refinery.load(project)
