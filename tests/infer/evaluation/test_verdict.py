"""The verdict of a project: validation questions decide what is served, and test questions say how much better it is."""

import pytest
import yaml

from infer.commands import verdict as command
from infer.evaluation.verdict import find_verdict, write_served
from infer.recipe import load_pipeline_recipe
from refinery.contract.records import Question
from refinery.errors import RecipeError, RunDirError


def questions(count: int) -> list[Question]:
    return [Question(id=f"q{n}", text=f"Who is {n}?", answers=["Torvel"]) for n in range(count)]


def right(correct: int, count: int) -> list[str]:
    return ["Torvel"] * correct + ["Oslo"] * (count - correct)


@pytest.fixture
def project(stored_run):
    """Runs of `rag` and `rq_rag`, as of a project: how many of 100 test and of 60 validation questions each answers right."""

    def runs(tested: dict[str, int], validated: dict[str, int], *, sizes: tuple[int, int] = (100, 60)):
        made = []
        for part, counts, size in (("test", tested, sizes[0]), ("validation", validated, sizes[1])):
            made.append([stored_run(f"{part}/{name}", questions(size), right(count, size), name=name) for name, count in counts.items()])
            made[-1] = [run.rename(run.parent / name) for run, name in zip(made[-1], counts, strict=True)]
        return made

    return runs


def test_the_method_that_is_best_on_validation_is_served(project):
    found = find_verdict(*project({"rag": 40, "rq_rag": 70}, {"rag": 20, "rq_rag": 40}), baseline="rag")
    assert found.served.name == "rq_rag"
    assert found.sentence.startswith("rq_rag is better than rag, by +30.0 f1.squad [+")
    assert found.sentence.endswith("on 100 test questions: serving rq_rag (66.7 f1.squad for 33.3 on 60 validation questions)")
    assert found.remarks == ()


def test_a_method_that_is_not_better_is_not_served(project):
    found = find_verdict(*project({"rag": 40, "rq_rag": 42}, {"rag": 30, "rq_rag": 30}), baseline="rag")
    assert found.served.name == "rag"
    assert found.sentence.startswith("rq_rag is not shown to be better than rag, by +2.0 f1.squad [")
    assert ": serving rag (50.0 f1.squad for 50.0" in found.sentence


def test_a_method_that_is_worse_is_called_so(project):
    found = find_verdict(*project({"rag": 70, "rq_rag": 0}, {"rag": 30, "rq_rag": 0}), baseline="rag")
    assert found.sentence.startswith("rq_rag is worse than rag, by -70.0 f1.squad")
    assert any(remark.startswith("rq_rag has f1.squad 0.0 on all 100 test questions. Look at its answers: ") for remark in found.remarks)


def test_few_questions_are_said(project):
    found = find_verdict(*project({"rag": 4, "rq_rag": 6}, {"rag": 1, "rq_rag": 2}, sizes=(12, 3)), baseline="rag")
    assert [remark.partition(" are few")[0] for remark in found.remarks] == ["12 test questions", "3 validation questions"]


def test_the_served_recipe_is_the_chosen_systems(project, tmp_path):
    found = find_verdict(*project({"rag": 40, "rq_rag": 70}, {"rag": 20, "rq_rag": 40}), baseline="rag")
    write_served(found, tmp_path / "served.yaml")
    assert (tmp_path / "served.yaml").read_text().startswith(f"# {found.sentence}\n")
    assert "output_dir" not in yaml.safe_load((tmp_path / "served.yaml").read_text())
    assert load_pipeline_recipe(tmp_path / "served.yaml").decoder == "rag"


def test_how_people_are_answered_is_added_to_the_served_recipe_alone(project, tmp_path):
    tested, validated = project({"rag": 40, "rq_rag": 70}, {"rag": 20, "rq_rag": 40})
    added = "cited: {not_answered: Ask the office.}\nsub_models: {writer: {base: models/base}}\n"
    (tmp_path / "people.yaml").write_text(added)
    write_served(find_verdict(tested, validated, baseline="rag"), tmp_path / "served.yaml", additions=tmp_path / "people.yaml")
    served = load_pipeline_recipe(tmp_path / "served.yaml")
    assert (served.cited.not_answered, served.sub_models["writer"].base) == ("Ask the office.", "models/base")


def test_a_served_recipe_that_is_wrong_is_not_written(project, tmp_path):
    tested, validated = project({"rag": 40, "rq_rag": 70}, {"rag": 20, "rq_rag": 40})
    (tmp_path / "people.yaml").write_text("cited: {max_tokens: 5}\n")
    with pytest.raises(RecipeError, match="people.yaml: cited.max_tokens: unknown key"):
        write_served(find_verdict(tested, validated, baseline="rag"), tmp_path / "served.yaml", additions=tmp_path / "people.yaml")
    assert not (tmp_path / "served.yaml").exists()


def test_runs_of_other_systems_are_refused(project):
    tested, validated = project({"rag": 40, "rq_rag": 70}, {"rag": 20, "direct": 40})
    with pytest.raises(RunDirError, match="test runs rag, rq_rag and validation runs rag, direct must be of the same systems"):
        find_verdict(tested, validated, baseline="rag")


def test_the_command_prints_the_verdict_last(project, tmp_path, capsys):
    import argparse

    tested, validated = project({"rag": 4, "rq_rag": 6}, {"rag": 1, "rq_rag": 2}, sizes=(12, 3))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = [*map(str, tested), "--validation", *map(str, validated), "--baseline", "rag", "--output", str(tmp_path / "served.yaml")]
    command.run(parser.parse_args(words))
    assert "serving rq_rag" in capsys.readouterr().out.splitlines()[-1]
