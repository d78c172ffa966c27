"""A project's steps as jobs."""

from pathlib import Path

import pytest

from refinery.errors import RecipeError
from refinery.project.jobs import Job, jobs_of
from refinery.project.project import Project, Step, read_project
from refinery.runtime.recipes.shipped_files import shipped


def _jobs(until: str | None = None, **commands: list[str]) -> dict[str, Job]:
    return jobs_of(Project(steps={name: Step(command=words) for name, words in commands.items()}), where="refinery.yaml", until=until)


def _needs(**commands: list[str]) -> dict[str, tuple[str, ...]]:
    return {name: job.needs for name, job in _jobs(**commands).items()}


def test_a_step_needs_those_whose_outputs_it_names() -> None:
    index = ["index", "runs/passages.jsonl", "--output", "runs/index"]

    assert _needs(index=index, passages=["passages", "docs", "--output", "runs/passages.jsonl"]) == {"passages": (), "index": ("passages",)}


def test_a_step_needs_what_writes_a_file_inside_of_the_named_folder(tmp_path: Path) -> None:
    recipe = tmp_path / "a.yaml"
    recipe.write_text("decoder: direct\nquestions: [runs/questions/test.jsonl]\noutput_dir: runs/answers\n")

    assert _needs(split=["split", "q.jsonl", "--output", "runs/questions"], answers=["infer", str(recipe)])["answers"] == ("split",)


def test_a_command_over_a_folder_needs_all_that_is_written_there() -> None:
    split = ["split", "q.jsonl", "--output", "runs/questions"]

    assert _needs(split=split, page=["view", ".", "--output", "page.html"])["page"] == ("split",)


def test_overrides_of_a_recipe_count_among_its_paths(tmp_path: Path) -> None:
    recipe = tmp_path / "a.yaml"
    recipe.write_text("decoder: direct\nquestions: [mine.jsonl]\noutput_dir: a\n")
    jobs = _jobs(split=["split", "q.jsonl", "--output", "q"], answers=["infer", str(recipe), "questions=[q/test.jsonl]", "output_dir=b"])

    assert (jobs["answers"].needs, jobs["answers"].output) == (("split",), Path("b"))


def test_until_leaves_out_what_the_step_does_not_need() -> None:
    steps = {"a": ["split", "q", "--output", "a"], "b": ["split", "q", "--output", "b"], "c": ["split", "a/test.jsonl", "--output", "c"]}

    assert list(_jobs("c", **steps)) == ["a", "c"]


def test_a_wrong_name_of_a_step_is_told_the_nearest_one() -> None:
    with pytest.raises(RecipeError, match=r"no step 'anwers'\. Did you mean 'answers'\? Available: answers\."):
        _jobs("anwers", answers=["split", "q", "--output", "a"])


def test_a_skipped_step_that_does_not_exist_is_told_the_nearest_one() -> None:
    project = Project(steps={"answers": Step(command=["split", "q", "--output", "a"])}, skip=["answer"])
    with pytest.raises(RecipeError, match=r"refinery.yaml: skip: no step 'answer'\. Did you mean 'answers'\?"):
        jobs_of(project, where="refinery.yaml")


@pytest.mark.parametrize("stage", ["train", "infer"])
@pytest.mark.parametrize("named", ["ddp", "accelerate_configs/ddp.yaml"])
def test_a_step_is_launched_with_its_accelerate_file_on_a_free_port(tmp_path: Path, stage: str, named: str) -> None:
    (tmp_path / "a.yaml").write_text("output_dir: a\n")
    project = Project(steps={"a": Step(command=[stage, str(tmp_path / "a.yaml"), "limit=2"], accelerate=named)})
    arguments = jobs_of(project, where="refinery.yaml")["a"].arguments

    assert arguments[2:5] == ("-m", "accelerate.commands.launch", "--config_file")
    assert Path(arguments[5]).samefile(shipped("accelerate_configs/ddp.yaml"))
    assert arguments[6:] == ("--main_process_port", "0", "-m", stage, str(tmp_path / "a.yaml"), "limit=2", "--resume")


@pytest.mark.parametrize("shared", ["num_machines: 2", "main_process_port: 29501"])
def test_a_file_for_several_machines_or_with_a_port_keeps_its_port(tmp_path: Path, shared: str) -> None:
    (tmp_path / "a.yaml").write_text("output_dir: a\n")
    (tmp_path / "two.yaml").write_text(f"distributed_type: MULTI_GPU\nnum_processes: 16\n{shared}\n")
    project = Project(steps={"a": Step(command=["train", str(tmp_path / "a.yaml")], accelerate=str(tmp_path / "two.yaml"))})

    assert "--main_process_port" not in jobs_of(project, where="refinery.yaml")["a"].arguments


def test_an_accelerate_file_that_is_not_there_is_one_line_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("output_dir: a\n")
    project = Project(steps={"a": Step(command=["train", str(tmp_path / "a.yaml")], accelerate="zero9")})

    with pytest.raises(RecipeError, match=r"^refinery.yaml: steps.a.accelerate: zero9: there is no such accelerate file. .*zero2"):
        jobs_of(project, where="refinery.yaml")


def test_a_step_that_does_not_compute_is_not_launched(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("output_dir: a\n")
    project = Project(steps={"a": Step(command=["distill", str(tmp_path / "a.yaml")], accelerate="ddp.yaml")})

    with pytest.raises(RecipeError, match=r"refinery.yaml: steps.a.accelerate: only train and infer are launched by accelerate."):
        jobs_of(project, where="refinery.yaml")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"a": ["split", "q", "--output", "x"], "b": ["split", "p", "--output", "x"]}, "steps 'a' and 'b' both write to x"),
        ({"a": ["split", "y", "--output", "x"], "b": ["split", "x", "--output", "y"]}, "steps a, b need each other's outputs"),
        ({"a": ["infer"]}, r"steps.a: names no recipe. Write \[infer, RECIPE\]"),
        ({"a": ["infer", "nowhere.yaml"]}, "nowhere.yaml: cannot be read"),
    ],
)
def test_steps_that_cannot_work_are_refused_before_any_runs(steps: dict[str, list[str]], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        _jobs(**steps)


def test_an_unknown_step_is_refused_with_those_there_are() -> None:
    with pytest.raises(RecipeError, match="no step 'b'. Available: a"):
        _jobs("b", a=["split", "q", "--output", "x"])


def test_a_projects_file_fills_in_its_own_values(tmp_path: Path) -> None:
    (tmp_path / "refinery.yaml").write_text('values: {documents: docs}\nsteps: {a: {command: [passages, "${documents}"]}}\n')

    assert read_project(tmp_path).steps["a"].command == ["passages", "docs"]


def test_a_folder_that_is_no_project_names_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"has no refinery.yaml, so it is not a project. Start one: refinery new"):
        read_project(tmp_path)
