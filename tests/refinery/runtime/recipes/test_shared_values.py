"""What a project's recipes share."""

from pathlib import Path

import pytest

from refinery.errors import RecipeError
from refinery.project.project import read_project
from refinery.runtime.recipe import read_values
from refinery.runtime.recipes.shared_values import enter_project

SHARED = "values: {base: owner/model, teacher: {model: m, base_url: http://h/v1}}\nserve: recipes/a.yaml\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # and back at the end, wherever a test has gone
    (tmp_path / "project" / "recipes").mkdir(parents=True)
    (tmp_path / "project" / "refinery.yaml").write_text(SHARED)
    return tmp_path / "project"


def _recipe(project: Path, text: str) -> str:
    (project / "recipes" / "a.yaml").write_text(text)
    return enter_project(str(project / "recipes" / "a.yaml"))


def test_a_recipe_takes_whole_values_from_its_project(project: Path) -> None:
    values = read_values(_recipe(project, "llm: {base: '${base}'}\nteacher: ${teacher}\n"))

    assert values == {"llm": {"base": "owner/model"}, "teacher": {"model": "m", "base_url": "http://h/v1"}}


def test_overrides_win_over_the_projects_values(project: Path) -> None:
    assert read_values(_recipe(project, "base: ${base}\n"), ["base=other"]) == {"base": "other"}


def test_an_override_of_the_project_reaches_its_recipes_and_no_other_projects(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFINERY_PROJECT_VALUES", "{}")  # and gone at the end
    (project / "refinery.yaml").write_text(f"{SHARED}steps: {{a: {{command: [view, '${{base}}']}}}}\n")
    steps = read_project(project, ["values.base=other", "values.teacher.model=large"]).steps
    values = read_values(_recipe(project, "base: ${base}\nteacher: ${teacher}\n"))

    assert (steps["a"].command, values["base"], values["teacher"]["model"]) == (["view", "other"], "other", "large")
    (project / "inner").mkdir()
    (project / "inner/refinery.yaml").write_text("values: {base: its own}\n")
    (project / "inner/b.yaml").write_text("base: ${base}\n")
    assert read_values(enter_project(str(project / "inner/b.yaml"))) == {"base": "its own"}


def test_text_around_a_name_is_left_alone(project: Path) -> None:
    assert read_values(_recipe(project, "note: costs ${base} more\n")) == {"note": "costs ${base} more"}


def test_an_unknown_name_is_refused_with_those_there_are(project: Path) -> None:
    with pytest.raises(RecipeError, match=r"a.yaml: options.base: no value 'bse' in refinery.yaml. Available: base, teacher."):
        read_values(_recipe(project, "options: {base: '${bse}'}\n"))


def test_a_projects_recipe_is_run_from_the_projects_folder(project: Path) -> None:
    inside = _recipe(project, "base: ${base}\n")

    assert (inside, Path.cwd()) == ("recipes/a.yaml", project)


def test_the_project_itself_means_what_it_serves(project: Path) -> None:
    (project / "recipes" / "a.yaml").touch()
    assert enter_project(str(project)) == "recipes/a.yaml"


def test_what_it_serves_must_have_been_made(project: Path) -> None:
    with pytest.raises(RecipeError, match="recipes/a.yaml, which it serves, is not there yet. Make it with `refinery run "):
        enter_project(str(project))


def test_a_project_that_serves_nothing_is_refused_in_one_line(project: Path) -> None:
    (project / "refinery.yaml").write_text("steps: {}\n")

    with pytest.raises(RecipeError, match="names no recipe to `serve`"):
        enter_project(str(project))


def test_a_recipe_read_from_elsewhere_names_the_folder_to_go_to(project: Path, tmp_path: Path) -> None:
    (project / "recipes" / "a.yaml").write_text("base: ${base}\n")

    with pytest.raises(RecipeError, match=f"Run it from there: cd {project}"):
        read_values(project / "recipes" / "a.yaml")


def test_a_recipe_outside_of_projects_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text("base: ${base}\n")

    assert (enter_project(str(tmp_path / "plain.yaml")), read_values(tmp_path / "plain.yaml")) == (
        str(tmp_path / "plain.yaml"),
        {"base": "${base}"},
    )
