"""What every engine does, by qdrant-client's local mode and by opensearch-py over a double of the engine."""

from dataclasses import dataclass
from typing import Any

import pytest

from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RetrievalError
from refinery.indexes.build import build_index
from refinery.indexes.update import update_index
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever

ROWS = [Passage(id=f"p{number}", title=f"title {number}", text=f"{number * 7919} and {number}") for number in range(60)]
LOADED = {"corpus_hash": "other", "num_passages": 60}


@dataclass
class Tried:
    """An engine under test. `drop`, `lose_a_row` and `describe` change a collection behind its back."""

    engine: type
    options: dict[str, Any]
    collections: Any
    drop: Any
    lose_a_row: Any
    describe: Any

    def config(self, **values):
        return RetrieverConfig(name=self.engine.name, **values)


def tried_qdrant(options):
    from refinery.retrievers import qdrant

    client = qdrant._local_client(options["path"])
    return Tried(
        qdrant.Qdrant,
        options,
        collections=lambda: [found.name for found in client.get_collections().collections],
        drop=client.delete_collection,
        lose_a_row=lambda name: client.delete(name, points_selector=[3]),
        describe=lambda name, loaded: client.update_collection(name, metadata={"refinery": loaded}),
    )


def tried_opensearch(double, options):
    from refinery.retrievers import opensearch

    return Tried(
        opensearch.OpenSearch,
        options,
        collections=lambda: list(double.indices),
        drop=double.indices.pop,
        lose_a_row=lambda name: double.indices[name]["rows"].popitem(),
        describe=lambda name, loaded: double.indices[name]["mappings"].update(_meta={"refinery": loaded}),
    )


@pytest.fixture(params=["qdrant", "opensearch"])
def tried(request, tmp_path):
    if request.param == "qdrant":
        pytest.importorskip("qdrant_client", reason="needs the extra `qdrant`")
        encoder = {"model": request.getfixturevalue("tiny_encoders")["encoder"]}
        yield tried_qdrant({"encoder": encoder, "path": str(tmp_path / "qdrant"), "collection": "wiki"})
    else:
        pytest.importorskip("opensearchpy", reason="needs the extra `opensearch`")
        from helpers.opensearch_server import OpenSearchDouble, running

        double = OpenSearchDouble()
        with running(double) as address:
            yield tried_opensearch(double, {"url": address, "collection": "wiki", "requests_at_once": 1})


@pytest.fixture
def source(tmp_path):
    write_records(tmp_path / "p.jsonl", ROWS)
    return tmp_path / "p.jsonl"


@pytest.fixture
def index(tried, source, tmp_path, monkeypatch):
    monkeypatch.setattr(tried.engine, "passages_per_request", 16)
    build_index(source, tmp_path / "index", tried.config(options=tried.options))
    return tmp_path / "index"


def test_a_machine_without_the_index_folder_searches_by_name(tried, index, search):
    with_folder = build_retriever(tried.config(index=index))
    by_name = build_retriever(tried.config(options=tried.options))
    assert by_name.corpus_hash == with_folder.corpus_hash
    assert search(by_name, "title 40") == search(with_folder, "title 40")


def test_a_stopped_load_goes_on_where_it_was(tried, source, tmp_path, monkeypatch):
    config, send, sent = tried.config(options=tried.options), tried.engine._send, []

    def stumble(engine, collection, start, batch, prepared):
        sent.append(start)
        if len(sent) == 3:
            raise KeyboardInterrupt
        send(engine, collection, start, batch, prepared)

    monkeypatch.setattr(tried.engine, "passages_per_request", 16)
    monkeypatch.setattr(tried.engine, "_send", stumble)
    with pytest.raises(KeyboardInterrupt):
        build_index(source, tmp_path / "index", config)
    with pytest.raises(RetrievalError, match=f"has no {tried.engine.kind} 'wiki'"):
        build_retriever(config)
    build_index(source, tmp_path / "index", config, resume=True)
    assert sent == [0, 16, 32, 32, 48]
    assert build_retriever(config).corpus_hash


def test_an_update_loads_beside_the_old_passages_and_then_takes_their_name(tried, source, index, search, caplog):
    write_records(source, ROWS[:5])
    assert update_index(source, index).manifest.num_passages == 5
    assert len(tried.collections()) == 2
    for values in ({"index": index}, {"options": tried.options}):
        assert len(search(build_retriever(tried.config(**values)), "title", k=10)) == 5
    assert f"Delete that {tried.engine.kind} when no run searches it" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tried, name: tried.drop(name), "has no (collection|index) 'wiki_"),
        (lambda tried, name: tried.lose_a_row(name), "holds 59 rows, but 60 were loaded"),
        (lambda tried, name: tried.describe(name, None), "was not loaded to its end by `refinery index`"),
        (lambda tried, name: tried.describe(name, LOADED), "holds 60 passages of corpus other, but .*index is of 60 of corpus"),
    ],
)
def test_a_collection_that_is_not_the_indexs_is_refused(tried, index, change, message):
    (name,) = tried.collections()
    change(tried, name)
    with pytest.raises(RetrievalError, match=message):
        build_retriever(tried.config(index=index))


def test_no_server_is_said_with_what_to_check(tried, monkeypatch):
    monkeypatch.setattr("refinery.retrievers.search.requests.time.sleep", lambda seconds: None)
    nowhere = {key: value for key, value in tried.options.items() if key != "path"} | {"url": "http://127.0.0.1:9", "tries": 2}
    with pytest.raises(RetrievalError, match=r"http://127.0.0.1:9: a request failed \(.*\). Check that .* runs"):
        build_retriever(tried.config(options=nowhere))


def test_passages_in_memory_are_refused(tried, source):
    with pytest.raises(RecipeError, match=f"{tried.engine.name} searches what was loaded into it"):
        build_retriever(tried.config(passages=source, options=tried.options))
