"""A plan says what a project reaches outside of itself before it imports anything, and imports none of it that was not named again."""

import sys

import pytest
import yaml

from refinery.cli import main
from refinery.runtime.run.reach import print_reach

SERVER = {"base_url": "http://127.0.0.1:9/v1", "model": "qwen:latest", "api_key_env": "AWS_SECRET_ACCESS_KEY"}
RECIPE = {"decoder": "helper_of_others:DECODER", "questions": ["q.jsonl"], "output_dir": "runs/a", "endpoint": SERVER}
PROJECT = {"steps": {"answers": {"command": ["infer", "a.yaml"], "environment": {"LD_PRELOAD": "evil.so"}}}}
HELPER = "import pathlib\npathlib.Path('EXECUTED').touch()\nfrom infer.decoders.direct import DECODER\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project from others, whose decoder leaves a file when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "helper_of_others", raising=False)
    (tmp_path / "refinery.yaml").write_text(yaml.safe_dump(PROJECT))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(RECIPE))
    (tmp_path / "q.jsonl").write_text('{"id": "q1", "text": "Who?", "answers": ["a"]}\n')
    (tmp_path / "helper_of_others.py").write_text(HELPER)
    return tmp_path


def lines(capsys, values):
    print_reach(values)
    return [line.removeprefix("- ") for line in capsys.readouterr().out.splitlines()[1:]]


def test_the_plan_of_a_project_lists_what_it_reaches_and_imports_nothing(project, capsys):
    assert main(["run", ".", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1:4] == [
        "- runs helper_of_others:DECODER, in helper_of_others.py (answers.decoder)",
        "- sends to http://127.0.0.1:9/v1 the value of $AWS_SECRET_ACCESS_KEY (answers.endpoint)",
        "- sets LD_PRELOAD=evil.so (answers.environment)",
    ]
    assert printed.index("runs helper_of_others") < printed.index("to do")
    assert not (project / "EXECUTED").exists()


@pytest.mark.parametrize(("trust", "code"), [([], 2), (["--trust", "helper_of_others:DECODER"], 0)])
def test_a_dry_run_of_a_recipe_imports_a_module_only_if_it_is_named_again(project, capsys, trust, code):
    assert main(["infer", "a.yaml", "--dry-run", *trust]) == code
    printed = capsys.readouterr()
    assert "- runs helper_of_others:DECODER, in helper_of_others.py (decoder)" in printed.out
    assert ("name it again: --trust helper_of_others:DECODER" in printed.err) is bool(code)
    assert (project / "EXECUTED").exists() is not bool(code)


def test_modules_are_told_from_files_hosts_and_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_lab").mkdir()
    values = {"task": "my_lab.hops", "metrics": ["recall.retrieval", "em", "gone:score"], "data": ["my_lab.jsonl"], "model": "qwen:latest"}
    assert lines(capsys, values | {"method": "yaml"}) == [
        "runs my_lab.hops, in my_lab (task)",
        "runs gone:score, which is not found now (metrics)",
    ]
    assert lines(capsys, {"reader": "yaml.nodes:Node"}) == ["runs yaml.nodes:Node, an installed module (reader)"]


def test_paths_outside_of_the_folder_are_followed_through_links(tmp_path, monkeypatch, capsys):
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    (tmp_path / "inside" / "link").symlink_to(tmp_path)
    values = {"output_dir": "../run", "data": ["link/x.jsonl", "runs/x", "recipes/../x", "a\0b"], "base": str(tmp_path)}
    assert lines(capsys, values) == [
        f"uses the path {tmp_path}/run (output_dir)",
        f"uses the path {tmp_path}/x.jsonl (data)",
        f"uses the path {tmp_path} (base)",
    ]


def test_a_recipe_that_another_names_is_read_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("also: a.yaml\nretriever: {url: 'http://127.0.0.1:9', headers_env: {X: MY_KEY}}\n")
    assert lines(capsys, {"infer": "a.yaml"}) == ["sends to http://127.0.0.1:9 the value of $MY_KEY (infer.a.yaml.retriever)"]


def test_no_secret_is_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    values = {"a": {"base_url": "http://me:pass@127.0.0.1/v1"}, "environment": {"KEY": "sk-" + "a1" * 12}}
    assert lines(capsys, values) == ["sets KEY=... (environment)"]


def test_a_recipe_that_reaches_nothing_prints_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    print_reach({"decoder": "rag", "llm": {"base": "meta-llama/Llama-3.1-8B"}, "questions": ["q.jsonl"]})
    assert capsys.readouterr().out == ""
