"""An index whose parts several processes build in one folder, and which `--resume` joins."""

import random
import shutil
import threading

import pytest

from refinery.cli import main
from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RunDirError
from refinery.indexes import build
from refinery.indexes.build import begin_shards, build_index, build_shard
from refinery.passages.corpus import Corpus
from refinery.retrievers import bm25
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.index.manifest import read_manifest
from refinery.retrievers.index.words import Tokenizer
from refinery.retrievers.search.build import build_retriever
from refinery.runtime.run.run_lock import locked_run
from refinery.runtime.run.shards import shard_folder

WORDS = [f"word{number}" for number in range(60)]


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Passages that make ten parts of an index of BM25."""
    monkeypatch.setattr(bm25, "PASSAGES_PER_PART", 10)
    rng = random.Random(0)
    passages = [Passage(id=str(n), title=f"Title {n}", text=" ".join(rng.choices(WORDS, k=rng.randrange(30)))) for n in range(95)]
    write_records(tmp_path / "p.jsonl", passages)
    return tmp_path / "p.jsonl"


@pytest.fixture
def dense(tiny_encoders):
    """An index of vectors, of three batches."""

    def config(faiss="Flat"):
        return RetrieverConfig(name="dense", options={"encoder": {"model": tiny_encoders["encoder"], "batch_size": 1}, "faiss": faiss})

    return config


@pytest.fixture
def searched(monkeypatch):
    """How many texts were split into words at once, each time."""
    counted, original = [], Tokenizer.__call__
    monkeypatch.setattr(Tokenizer, "__call__", lambda self, texts: counted.append(len(texts)) or original(self, texts))
    return counted


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("of", [1, 3, 20])
def test_shards_of_bm25_make_the_index_of_one_process(source, tmp_path, of):
    for number in reversed(range(of)):
        build_shard(source, tmp_path / "shards", RetrieverConfig(), number, of)
    joined = build_index(source, tmp_path / "shards", RetrieverConfig(), resume=True)
    assert joined == build_index(source, tmp_path / "one", RetrieverConfig())
    assert files(tmp_path / "shards") == files(tmp_path / "one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "p.jsonl", "shards"]


@pytest.mark.parametrize("faiss", ["Flat", "SQ8"])
def test_shards_of_vectors_make_the_index_of_one_process(source, tmp_path, dense, faiss):
    for number in (1, 0):
        build_shard(source, tmp_path / "shards", dense(faiss), number, 2)
    joined = build_index(source, tmp_path / "shards", dense(faiss), resume=True)
    assert joined == build_index(source, tmp_path / "one", dense(faiss))
    assert files(tmp_path / "shards") == files(tmp_path / "one")
    assert build_retriever(RetrieverConfig(name="dense", index=tmp_path / "shards"))


class Stop(BaseException):
    pass


def test_a_shard_that_was_stopped_counts_only_what_it_had_not(source, tmp_path, searched, monkeypatch):
    begin_shards(source, tmp_path / "index", RetrieverConfig())
    searched.clear()
    read = Corpus.read
    with monkeypatch.context() as patched:
        patched.setattr(Corpus, "read", lambda self, start, stop: _raise() if start == 60 else read(self, start, stop))
        with pytest.raises(Stop):
            build_shard(source, tmp_path / "index", RetrieverConfig(), 0, 2)
    assert sum(searched) == 30
    for number in (0, 1):
        build_shard(source, tmp_path / "index", RetrieverConfig(), number, 2)
    assert sum(searched) == 95


def _raise():
    raise Stop


def test_a_shard_that_was_stopped_encodes_only_what_it_had_not(source, tmp_path, dense, monkeypatch):
    from refinery.retrievers import dense as module

    encoded = []
    encode = module.load_encoder(module.EncoderConfig(**dense().options["encoder"])).passages

    class Encoder:
        def passages(self, texts):
            if len(encoded) == fail_at:
                raise Stop
            encoded.append(len(texts))
            return encode(texts)

    begin_shards(source, tmp_path / "index", dense())
    monkeypatch.setattr(module, "load_encoder", lambda config: Encoder())
    fail_at = 1
    with pytest.raises(Stop):
        build_shard(source, tmp_path / "index", dense(), 0, 2)
    fail_at = None
    for number in (0, 1):
        build_shard(source, tmp_path / "index", dense(), number, 2)
    assert sorted(encoded) == [31, 32, 32]
    monkeypatch.undo()
    build_index(source, tmp_path / "index", dense(), resume=True)
    assert len(Corpus(tmp_path / "index")) == 95


def test_what_no_shard_has_built_is_built_when_they_are_joined(source, tmp_path):
    build_shard(source, tmp_path / "shards", RetrieverConfig(), 1, 3)
    build_shard(source, tmp_path / "shards", RetrieverConfig(), 0, 4)  # of another division, which may share parts with it
    joined = build_index(source, tmp_path / "shards", RetrieverConfig(), resume=True)
    assert joined == build_index(source, tmp_path / "one", RetrieverConfig())


def test_shards_that_start_together_write_the_corpus_once(source, tmp_path, monkeypatch):
    written, write = [], build.write_corpus
    monkeypatch.setattr(build, "write_corpus", lambda *args, **kwargs: written.append(1) or write(*args, **kwargs))
    shards = [threading.Thread(target=build_shard, args=(source, tmp_path / "index", RetrieverConfig(), n, 3)) for n in range(3)]
    for shard in shards:
        shard.start()
    for shard in shards:
        shard.join()
    assert written == [1]
    assert build_index(source, tmp_path / "index", RetrieverConfig(), resume=True).num_passages == 95


def test_shards_at_work_are_not_joined(source, tmp_path):
    begin_shards(source, tmp_path / "index", RetrieverConfig())
    with locked_run(shard_folder(tmp_path / "index", 2)), pytest.raises(RunDirError, match="shard 2 is still being built"):
        build_index(source, tmp_path / "index", RetrieverConfig(), resume=True)
    assert build_index(source, tmp_path / "index", RetrieverConfig(), resume=True)


def test_an_index_is_built_by_one_process_at_a_time(source, tmp_path):
    with locked_run(tmp_path / "index"), pytest.raises(RunDirError, match="another process is working"):
        build_index(source, tmp_path / "index", RetrieverConfig())


def test_the_lock_of_a_killed_process_is_no_index(source, tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "run.lock").touch()
    build_index(source, tmp_path / "index", RetrieverConfig())
    assert "run.lock" not in read_manifest(tmp_path / "index").files


def test_a_shard_with_other_options_or_passages_is_refused(source, tmp_path):
    build_shard(source, tmp_path / "index", RetrieverConfig(), 0, 2)
    with pytest.raises(RunDirError, match="was started with other passages or options"):
        build_shard(source, tmp_path / "index", RetrieverConfig(options={"k1": 2.0}), 1, 2)
    shutil.copy(source, tmp_path / "other.jsonl")
    with pytest.raises(RunDirError, match="was started with other passages or options"):
        build_shard(tmp_path / "other.jsonl", tmp_path / "index", RetrieverConfig(), 1, 2)


def test_a_finished_index_has_nothing_for_a_shard_to_build(source, tmp_path):
    build_index(source, tmp_path / "index", RetrieverConfig())
    before = files(tmp_path / "index")
    build_shard(source, tmp_path / "index", RetrieverConfig(), 0, 2)
    assert files(tmp_path / "index") == before


def test_an_engine_that_one_process_loads_has_no_shards(source, tmp_path):
    with pytest.raises(RecipeError, match="name: one process builds an index for opensearch. Leave out the shards"):
        build_shard(source, tmp_path / "index", RetrieverConfig(name="opensearch"), 0, 2)
    assert not (tmp_path / "index").exists()


def test_the_command_builds_shards_and_joins_them(source, tmp_path, capsys, search):
    command = ["index", str(source), "--output", str(tmp_path / "index"), "--set", "options.k1=1.2"]
    for shard in ("0/2", "1/2"):
        assert main([*command, "--shard", shard]) == 0
        assert f"shard {shard} is built. When all are, join them with --resume." in capsys.readouterr().out
    assert main([*command, "--resume"]) == 0
    assert "95 passages for retriever 'bm25'." in capsys.readouterr().out
    assert search(build_retriever(RetrieverConfig(index=tmp_path / "index")), "word1")


@pytest.mark.parametrize("shard", ["2/2", "1", "-1/2", "a/b", "0/0"])
def test_a_shard_that_does_not_exist_is_refused(source, tmp_path, shard, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["index", str(source), "--output", str(tmp_path / "index"), f"--shard={shard}"])
    assert f"'{shard}' is not a shard i/n" in capsys.readouterr().err


def test_an_update_has_no_shards(source, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["index", str(source), "--output", str(tmp_path / "index"), "--update", "--shard", "0/2"])
    assert "not allowed with" in capsys.readouterr().err
