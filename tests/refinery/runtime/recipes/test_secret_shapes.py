"""No secret that a recipe holds by mistake reaches a run's record, its card, or an error."""

import pytest
import yaml
from pydantic import ValidationError

from distill.__main__ import main
from refinery.contract.records import Question, write_records
from refinery.errors import RecipeError
from refinery.llms.served.endpoint import EndpointConfig
from refinery.runtime.recipe import apply_overrides

HIDDEN = "hunter2hunter2hunter2"
SECRETS = [
    ("teacher.api_key_env", f"sk-proj-{HIDDEN}", "is not the name of an environment variable"),
    ("teacher.api_key_env", f"gsk_{HIDDEN}", "is not the name of an environment variable"),
    ("teacher.api_key_env", f"{HIDDEN}0123456789ab", "is not the name of an environment variable"),
    ("teacher.api_key_env", [HIDDEN], "is not the name of an environment variable"),
    ("teacher.base_url", f"http://user:{HIDDEN}@127.0.0.1:9/v1", "contains a URL with a user name, password or key in it"),
    ("teacher.base_url", ["http://127.0.0.1:9/v1", f"http://{HIDDEN}@127.0.0.1:9/v1"], "contains a URL with a user name, password or key"),
    ("teacher.base_url", f"user:{HIDDEN}@127.0.0.1:9/v1", "contains a URL with a user name, password or key in it"),
    ("teacher.base_url", f"http://127.0.0.1:9/v1?code={HIDDEN}", "contains user information or a query"),
    ("teacher.model", f"sk-ant-{HIDDEN}", "contains what looks like a key"),
    ("retriever.options.url", f"https://user:{HIDDEN}@127.0.0.1:9/retrieve", "contains a URL with a user name, password or key in it"),
    ("retriever.options.url", f"https://127.0.0.1:9/retrieve?token={HIDDEN}", "contains a URL with a user name, password or key in it"),
    ("student", f"https://user:{HIDDEN}@hub.example/model", "contains a URL with a user name, password or key in it"),
]


@pytest.fixture
def recipe(tmp_path):
    write_records(tmp_path / "questions.jsonl", [Question(id="q", text="Who?")])
    values = {"task": "decomposition", "questions": [str(tmp_path / "questions.jsonl")], "output_dir": str(tmp_path / "run")}

    def write(key="", value=None):
        teacher = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "max_tries": 1}
        full = apply_overrides(values | {"teacher": teacher}, [f"{key}={yaml.safe_dump(value)}"] if key else [], where="r")
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(full))
        return str(tmp_path / "recipe.yaml")

    return write


@pytest.mark.parametrize(("key", "value", "message"), SECRETS)
@pytest.mark.parametrize("how", ["in the file", "as an override", "in a dry run"])
def test_a_secret_is_refused_and_not_repeated(recipe, tmp_path, capsys, key, value, message, how):
    arguments = [recipe(), f"{key}={yaml.safe_dump(value)}"] if how == "as an override" else [recipe(key, value)]
    assert main(arguments + ["--dry-run"] * (how == "in a dry run")) == 2
    said = capsys.readouterr()
    assert f": {key}" in said.err
    assert message in said.err
    assert HIDDEN not in said.out + said.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [f"http://user:{HIDDEN}@127.0.0.1:9/v1", f"http://127.0.0.1:9/v1?code={HIDDEN}"])
def test_what_pydantic_says_of_a_refused_part_does_not_repeat_it_either(value):
    with pytest.raises(ValidationError) as raised:
        EndpointConfig(model="m", base_url=value)
    assert HIDDEN not in str(raised.value)


@pytest.mark.parametrize("override", [f"sk-{HIDDEN}", f"teacher.api_key_env={{{HIDDEN}", f"a.b=[http://u:{HIDDEN}@h", f"a.b.c=sk-{HIDDEN}"])
def test_an_override_that_is_malformed_does_not_repeat_it_either(override):
    with pytest.raises(RecipeError) as raised:
        apply_overrides({"a": {"b": 1}}, [override], where="r")
    assert HIDDEN not in str(raised.value)


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "AZURE_OPENAI_KEY_2", "my_key", "MY_COMPANYS_OPENAI_API_KEY_FOR_PRODUCTION_V2"])
def test_the_name_of_a_variable_is_taken(name):
    assert EndpointConfig(model="org/model-7b@main", api_key_env=name).api_key_env == name


@pytest.mark.parametrize(
    "model", ["text-embedding-3-large", "hf://datasets/org/name@main/file", "sk-learn", "org/hf_model_with_a_long_name_2"]
)
def test_ordinary_names_are_taken(model):
    assert EndpointConfig(model=model).model == model


def test_an_address_without_a_scheme_is_refused():
    with pytest.raises(ValidationError, match="an address must start with http:// or https://"):
        EndpointConfig(model="m", base_url="127.0.0.1:8000/v1")
