"""The server around the decoders: its health, its names, the pages that may ask it, and what its decoders share."""

import openai
import pytest
import yaml
from helpers.chat_client import KEY, PASSAGES, ask

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from infer.shared_models import Parts
from refinery.cli import build_parser, main
from refinery.contract.records import write_records
from refinery.llms.fake import FakeLLM
from refinery.runtime.http_checks import Guard

PAGE = "http://localhost:3000"


@pytest.fixture
def closed_book():
    """`direct`, named `memory`, over a scripted model."""
    made = Pipeline(PipelineRecipe.model_validate({"decoder": "direct", "name": "memory", "llm": {"base": "none"}}))
    made.llm = FakeLLM(lambda text: "from memory")
    return made


def test_several_decoders_are_listed_and_the_model_chooses(pipeline, closed_book, served):
    client = served(pipeline, closed_book)
    assert [model.id for model in client.models.list()] == ["rag", "memory"]
    assert [ask(client, model=name).choices[0].message.content for name in ("rag", "memory")] == ["Cleo Marn", "from memory"]
    assert client.models.retrieve("memory").owned_by == "refinery"
    for asked in (lambda: ask(client, model="gpt"), lambda: client.models.retrieve("gpt")):
        with pytest.raises(openai.NotFoundError, match="no model 'gpt' here. Use 'rag' or 'memory'"):
            asked()


def test_health_needs_no_key_and_says_which_corpus_is_searched(pipeline, closed_book, served):
    client = served(pipeline, closed_book, guard=Guard(KEY))
    reply = client._client.get(str(client.base_url).replace("/v1/", "/health"))
    health = reply.json()
    assert (reply.status_code, health["status"], health["uptime_seconds"] >= 0) == (200, "ok", True)
    assert health["models"]["rag"] == {
        "decoder": "rag",
        "retriever": "bm25",
        "corpus_hash": pipeline.retriever.corpus_hash,
        "in_flight": 0,
    }
    assert health["models"]["memory"]["corpus_hash"] is None
    assert KEY not in reply.text
    assert "/" not in reply.text  # no path


def test_health_is_not_read_through_another_name(pipeline, served):
    client = served(pipeline, guard=Guard(hosts=("127.0.0.1",)))
    url = str(client.base_url).replace("/v1/", "/health")
    assert client._client.get(url, headers={"Host": "evil.example"}).status_code == 400


def preflight(client, origin):
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    return client._client.options(f"{client.base_url}chat/completions", headers=asked)


def test_a_page_of_a_named_origin_may_ask_and_another_may_not(pipeline, served):
    client = served(pipeline, guard=Guard(KEY), origins=(PAGE,))
    allowed = preflight(client, PAGE)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "access-control-allow-origin" not in preflight(client, "http://evil.example").headers
    body = {"model": "rag", "messages": [{"role": "user", "content": "Who made Cedar Falls?"}]}
    for key, status in ((KEY, 200), ("wrong", 401)):
        headers = {"Origin": PAGE, "Authorization": f"Bearer {key}"}
        reply = client._client.post(f"{client.base_url}chat/completions", json=body, headers=headers)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (status, PAGE)  # a page can read the error too


def test_without_the_option_no_page_may_ask(pipeline, served):
    reply = preflight(served(pipeline), PAGE)
    assert reply.status_code == 405
    assert "access-control-allow-origin" not in reply.headers


@pytest.fixture
def recipe(tmp_path):
    write_records(tmp_path / "passages.jsonl", PASSAGES)

    def write(name, **values):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"decoder": "rag", "retriever": {"passages": str(tmp_path / "passages.jsonl")}} | values))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cors", "*"], "--cors *: every web page that you open could ask. Name its origin, or a key's variable with --api-key-env."),
        (["--cors", "localhost:3000/chat"], "--cors localhost:3000/chat: is not an origin. Write scheme, host and port alone"),
        (["SAME"], "2 recipes are named 'rag', and clients choose a decoder by its name. Set `name` in them."),
        (["passages_per_qery=3"], "passages_per_qery"),
    ],
)
def test_what_cannot_be_served_is_one_line(recipe, capsys, arguments, message):
    path = recipe("a", llm={"base": "none"})
    same = recipe("b", llm={"base": "none"})
    assert main(["serve", path, *(same if argument == "SAME" else argument for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_any_origin_may_ask_a_server_with_a_key(pipeline, served):
    assert preflight(served(pipeline, guard=Guard(KEY), origins=("*",)), PAGE).headers["access-control-allow-origin"] == "*"


def test_recipes_and_overrides_are_told_apart():
    arguments = build_parser().parse_args(["serve", "a.yaml", "b.yaml", "retriever.k1=x.yaml", "--port", "0"])
    assert (arguments.recipe, arguments.more) == ("a.yaml", ["b.yaml", "retriever.k1=x.yaml"])


def test_decoders_of_one_base_and_one_corpus_share_them(recipe, tiny_bases):
    from infer.recipe import load_pipeline_recipe

    llm, parts = {"base": str(tiny_bases["tied"])}, Parts()
    paths = [recipe("rag", llm=llm), recipe("replug", decoder="replug", llm=llm), recipe("other", llm=llm | {"seed": 1})]
    first, second, other = [Pipeline(load_pipeline_recipe(path)) for path in paths]
    for pipeline in (first, second, other):
        pipeline.load(parts)
    assert first.llm is second.llm
    assert first.llm is not other.llm
    assert first.retriever is second.retriever is other.retriever
