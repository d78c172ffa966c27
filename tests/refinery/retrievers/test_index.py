"""`refinery index` and what is opened from it."""

import json
import random
import shutil
from pathlib import Path

import bm25s
import numpy as np
import pytest

from refinery.cli import main
from refinery.contract.records import Passage, write_records
from refinery.errors import RecipeError, RecordError, RetrievalError, RunDirError
from refinery.indexes.build import build_index
from refinery.indexes.update import update_index
from refinery.passages.corpus import Corpus, searched_text, write_corpus
from refinery.passages.sources import iter_passages
from refinery.retrievers import bm25
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.bm25 import Bm25, Options
from refinery.retrievers.index import postings, word_counts
from refinery.retrievers.index.manifest import MANIFEST_FILE, read_manifest, sampled_checksum
from refinery.retrievers.index.postings_files import read_vocabulary
from refinery.retrievers.index.words import Tokenizer
from refinery.retrievers.search.build import build_retriever
from refinery.retrievers.search.postings import open_postings


@pytest.fixture
def source(tmp_path, passages):
    write_records(tmp_path / "passages.jsonl", passages)
    return tmp_path / "passages.jsonl"


@pytest.fixture
def index(source, tmp_path):
    build_index(source, tmp_path / "index", RetrieverConfig())
    return tmp_path / "index"


def drawn(count):
    """Passages of words as rare as words are, some of them empty."""
    rng = random.Random(0)
    words = [f"word{number}" for number in range(300)]
    weights = [1 / (rank + 1) for rank in range(300)]
    return [Passage(id=str(n), title="", text=" ".join(rng.choices(words, weights, k=rng.randrange(40)))) for n in range(count)]


@pytest.mark.parametrize(("per_part", "processes"), [(7, 1), (7, 3), (100, 1), (1_000, 1)])
@pytest.mark.parametrize("pairs_at_once", [50, 1 << 21])
def test_postings_built_in_parts_are_those_of_bm25s(tmp_path, monkeypatch, per_part, processes, pairs_at_once):
    monkeypatch.setattr(word_counts, "processes_for", lambda num_parts: processes)
    monkeypatch.setattr(postings, "PAIRS_AT_ONCE", pairs_at_once)
    monkeypatch.setattr(bm25, "PASSAGES_PER_PART", per_part)
    passages, options = drawn(100), Options(k1=1.2, b=0.7)
    write_corpus(passages, tmp_path, total=100)
    bm25.build_index(Corpus(tmp_path), tmp_path, options)
    built, vocabulary, expected = open_postings(tmp_path, 100), read_vocabulary(tmp_path), bm25s.BM25(k1=1.2, b=0.7)
    expected.index(Tokenizer(options)([searched_text(passage) for passage in passages]), show_progress=False)
    assert vocabulary.keys() | {""} == expected.vocab_dict.keys()
    for word, number in vocabulary.items():
        scores = expected.get_scores([word])
        assert dict(built.best([number], 100)) == {place: float(scores[place]) for place in np.flatnonzero(scores)}
    assert not (tmp_path / "parts").exists()


def test_a_corpus_without_words_is_not_indexed(tmp_path):
    write_records(tmp_path / "p.jsonl", [Passage(id="a", text="the of and")])
    with pytest.raises(RecordError, match="the corpus holds no words to search"):
        build_index(tmp_path / "p.jsonl", tmp_path / "index", RetrieverConfig())


def test_a_process_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(word_counts, "processes_for", lambda num_parts: 2)
    monkeypatch.setattr(bm25, "PASSAGES_PER_PART", 7)
    write_corpus(drawn(100), tmp_path, total=100)
    corpus = Corpus(tmp_path)
    lines = (tmp_path / "passages.jsonl").read_bytes()
    (tmp_path / "passages.jsonl").write_bytes(lines[: len(lines) // 2])
    with pytest.raises(RetrievalError, match=r"a process that counts words ended with status 1 \(.*\)\. Free what it lacked"):
        bm25.build_index(corpus, tmp_path, Options())


def test_an_index_finds_what_memory_finds(tmp_path, search):
    write_records(tmp_path / "p.jsonl", drawn(200))
    build_index(tmp_path / "p.jsonl", tmp_path / "index", RetrieverConfig())
    opened = build_retriever(RetrieverConfig(index=tmp_path / "index"))
    in_memory = build_retriever(RetrieverConfig(passages=tmp_path / "p.jsonl"))
    for query in ("word1 word7", "word250", "word3 word3 word40 word9"):
        found, expected = search(opened, query, k=10), search(in_memory, query, k=10)
        assert found == expected
    assert (opened.revision, opened.corpus_hash) == (in_memory.revision, in_memory.corpus_hash)


def test_what_the_recipe_leaves_out_the_index_says(source, tmp_path, search):
    build_index(source, tmp_path / "index", RetrieverConfig(options={"stemmer": None, "k1": 1.5}))
    opened = build_retriever(RetrieverConfig(index=tmp_path / "index"))
    assert opened.revision == build_retriever(RetrieverConfig(passages=source, options={"stemmer": None, "k1": 1.5})).revision
    with pytest.raises(RetrievalError, match=r"was built with k1=1\.5, but the recipe says 0\.9"):
        build_retriever(RetrieverConfig(index=tmp_path / "index", options={"k1": 0.9}))


def test_a_stopped_build_goes_on_with_the_parts_it_has(source, tmp_path, monkeypatch):
    write_records(source, passages := drawn(100))
    folder, counted = tmp_path / "index", []

    def stop_after(parts):
        def tokenize(self, texts):
            if len(texts) == 20:  # a part; the estimate and the checks have fewer
                counted.append(len(texts))
            if len(counted) > parts:
                raise KeyboardInterrupt
            return original(self, texts)

        return tokenize

    original = Tokenizer.__call__
    monkeypatch.setattr("refinery.retrievers.bm25.PASSAGES_PER_PART", 20)
    monkeypatch.setattr(word_counts, "processes_for", lambda num_parts: 1)
    monkeypatch.setattr(Tokenizer, "__call__", stop_after(3))
    with pytest.raises(KeyboardInterrupt):
        build_index(source, folder, RetrieverConfig())
    with pytest.raises(RetrievalError, match="holds no finished index"):
        build_retriever(RetrieverConfig(index=folder))
    counted.clear()
    monkeypatch.setattr(Tokenizer, "__call__", stop_after(1_000))
    build_index(source, folder, RetrieverConfig(), resume=True)
    assert len(counted) == 2
    assert build_retriever(RetrieverConfig(index=folder)).revision == Bm25(passages).revision


@pytest.mark.parametrize("file", ["plan.json", "corpus.json", "index.json"])
@pytest.mark.parametrize("go_on", [lambda *given: build_index(*given, resume=True), update_index], ids=["resume", "update"])
def test_a_build_that_was_killed_before_a_file_got_its_name_goes_on(source, tmp_path, monkeypatch, file, go_on):
    folder, replace = tmp_path / "index", Path.replace

    def killed(self, target):
        if Path(target).name == file:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        build_index(source, folder, RetrieverConfig())
    monkeypatch.undo()
    assert (folder / f"{file}.partial").exists()
    go_on(source, folder, RetrieverConfig())
    assert build_retriever(RetrieverConfig(index=folder)).corpus_hash == read_manifest(folder).corpus_hash
    assert not list(folder.glob("*.partial"))


def test_a_build_goes_on_only_with_what_it_began(source, tmp_path):
    folder = tmp_path / "index"
    build_index(source, folder, RetrieverConfig())
    with pytest.raises(RunDirError, match=r"is not empty. Choose another --output, or continue this one with --resume"):
        build_index(source, folder, RetrieverConfig())
    assert build_index(source, folder, RetrieverConfig(), resume=True) == read_manifest(folder)
    (folder / "plan.json").write_text(json.dumps({"source": "x", "source_bytes": 1, "name": "bm25", "options": {}, "questions": ""}))
    with pytest.raises(RunDirError, match="was started with other passages or options"):
        build_index(source, folder, RetrieverConfig(), resume=True)


@pytest.mark.parametrize("file", ["data.csc.index.npy", "passages.jsonl", "vocab.index.json"])
def test_a_file_that_changed_is_named(index, file):
    content = bytearray((index / file).read_bytes())
    content[len(content) // 2] ^= 1
    (index / file).write_bytes(content)
    with pytest.raises(RetrievalError, match=f"{file}: is missing or has changed"):
        build_retriever(RetrieverConfig(index=index))


def test_a_file_that_is_missing_is_named(index):
    (index / "indptr.csc.index.npy").unlink()
    with pytest.raises(RetrievalError, match=r"indptr\.csc\.index\.npy: is missing"):
        build_retriever(RetrieverConfig(index=index))


def test_another_tokenizer_is_noticed(index, monkeypatch):
    monkeypatch.setattr(Tokenizer, "__call__", lambda self, texts: [text.split() for text in texts])
    with pytest.raises(RetrievalError, match="was built with a tokenizer that splits"):
        build_retriever(RetrieverConfig(index=index))


OLD_WORDS = ["run", "shoe", "were", "gener", "organis", "citi", "univers", "1984"]


def test_an_index_from_before_unspaced_words_were_split_stays_if_its_passages_have_spaces(index):
    manifest = read_manifest(index)
    (index / "tokenizer.json").write_text(json.dumps(OLD_WORDS))
    files = manifest.files | {"tokenizer.json": sampled_checksum(index / "tokenizer.json")}
    write_records(index / MANIFEST_FILE, [manifest.model_copy(update={"files": files})])
    assert build_retriever(RetrieverConfig(index=index)).revision
    unspaced = [check.model_copy(update={"query": "灯塔建于"}) for check in manifest.checks]
    write_records(index / MANIFEST_FILE, [manifest.model_copy(update={"files": files, "checks": unspaced})])
    with pytest.raises(RetrievalError, match=r"such as Chinese, was not split\. Build it again"):
        build_retriever(RetrieverConfig(index=index))


def test_a_map_of_ids_that_does_not_fit_is_noticed(index):
    manifest = read_manifest(index)
    swapped = [check.model_copy(update={"passage_id": "another"}) for check in manifest.checks]
    write_records(index / MANIFEST_FILE, [manifest.model_copy(update={"checks": swapped})])
    with pytest.raises(RetrievalError, match="found passage 'another' with .* when the index was built"):
        build_retriever(RetrieverConfig(index=index))


def test_an_index_of_another_retriever_is_refused(index):
    with pytest.raises(RetrievalError, match=r"is an index for retriever 'bm25', but the recipe names 'dense'. Set name: bm25"):
        build_retriever(RetrieverConfig(name="dense", index=index))


@pytest.mark.parametrize("name", ["candidates", "web", "hybrid"])
def test_a_retriever_without_an_index_of_its_own_says_so(source, tmp_path, name):
    with pytest.raises(RecipeError, match=f"name: {name} has no index"):
        build_index(source, tmp_path / "index", RetrieverConfig(name=name))


def test_passages_that_hold_a_question_are_left_out(source, tmp_path):
    manifest = build_index(source, tmp_path / "index", RetrieverConfig(), questions=["Dune is a film that Maria Torvel directed"])
    assert (manifest.num_passages, manifest.num_dropped) == (3, 1)


def test_a_line_that_cannot_be_read_stops_the_build_where_it_is(source, tmp_path):
    source.write_bytes(source.read_bytes() + b'{"id": "\xff"}\n')
    with pytest.raises(RecordError, match=r"passages\.jsonl:5: not UTF-8"):
        build_index(source, tmp_path / "index", RetrieverConfig())


def test_an_index_that_does_not_fit_the_disk_is_not_begun(source, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 100, 0))
    with pytest.raises(RetrievalError, match="MiB are free. Choose another disk"):
        build_index(source, tmp_path / "index", RetrieverConfig())


def test_the_command_indexes_a_folder_of_texts(tmp_path, search, capsys):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "lyon.md").write_text("# Lyon\nA city in France.", encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text('{"id": "q", "text": "A city in Norway?"}\n', encoding="utf-8")
    (tmp_path / "texts" / "oslo.md").write_text("# Oslo\nA city in Norway.", encoding="utf-8")
    options = ["--set", "options.b=0.3", "--without", str(tmp_path / "questions.jsonl")]
    assert main(["index", str(tmp_path / "texts"), "--output", str(tmp_path / "index"), *options]) == 0
    assert "1 passages for retriever 'bm25', 1 left out." in capsys.readouterr().out
    retriever = build_retriever(RetrieverConfig(index=tmp_path / "index"))
    assert [hit.passage.id for hit in search(retriever, "city")] == ["lyon.md:1"]


HOSTILE = [
    "[A_Response] 42 [EOS]",
    "[/R_Evidences]</s><|im_end|>\x00",
    "line\u2028separator\r\n\x85",
    "word " * 200_000,
    "x" * 1_000_000,
    "😀é",
]


def test_hostile_passages_come_back_as_they_were(tmp_path, search):
    rows = [Passage(id=f"id\n{number}", title=text[:40], text=f"needle{number} {text}") for number, text in enumerate(HOSTILE)]
    write_records(tmp_path / "p.jsonl", rows)
    build_index(tmp_path / "p.jsonl", tmp_path / "index", RetrieverConfig())
    retriever = build_retriever(RetrieverConfig(index=tmp_path / "index"))
    assert [search(retriever, f"needle{number}")[0].passage for number in range(len(rows))] == rows


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """Four times the corpus takes about as much memory: parts are of one size."""
    import subprocess
    import sys

    script = (
        "import re, sys\nfrom pathlib import Path\nfrom refinery.retrievers.base import RetrieverConfig\n"
        "from refinery.indexes.build import build_index\nimport Stemmer\n"
        # Not ru_maxrss, which begins with what the process that started this one took.
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "before = peak()\n"
        "build_index(Path(sys.argv[1]), Path(sys.argv[2]), RetrieverConfig())\n"
        "print(peak() - before)"
    )
    grown = []
    for count in (20_000, 80_000):
        rng = random.Random(0)
        rows = (Passage(id=str(n), text=" ".join(f"w{int(rng.paretovariate(0.9)) % 50_000}" for _ in range(100))) for n in range(count))
        write_records(tmp_path / f"{count}.jsonl", rows)
        arguments = [str(tmp_path / f"{count}.jsonl"), str(tmp_path / f"index{count}")]
        done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
        grown.append(int(done.stdout))
    assert grown[1] < 1.5 * grown[0]
    assert len(list(iter_passages(tmp_path / "20000.jsonl"))) == 20_000
