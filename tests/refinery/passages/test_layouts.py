"""Corpora as other projects publish them: Atlas' sections, FlashRAG's and Search-R1's contents, DPR's table, packed or not."""

import gzip
import json

import pytest

from refinery.cli import main
from refinery.contract.records import Passage, write_records
from refinery.errors import RecordError
from refinery.passages.corpus import Corpus
from refinery.passages.sources import estimate_count, iter_passages

ATLAS = [
    {"id": "0", "title": "Lyon", "section": "", "text": "A city in France."},
    {"id": "1", "title": "Lyon", "section": "Rivers", "text": "Two of them."},
]
FLASHRAG = [
    {"id": "0", "contents": '"Lyon"\nA city in France.\nOn two rivers.'},
    {"id": 1, "contents": "Lyon is a city.", "extra": [1]},
    {"id": "2", "title": "Lyon", "contents": "Lyon\nA city."},
    {"id": "3", "title": "Lyon", "text": "A city.", "contents": '"Lyon"\nA city.'},
    {"id": "4", "title": "Lyon", "contents": "A city.\nOn two rivers."},
]


def write_rows(path, rows):
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_atlas_passages_are_read_under_title_and_section(tmp_path):
    assert list(iter_passages(write_rows(tmp_path / "text-list-100-sec.jsonl", ATLAS))) == [
        Passage(id="0", title="Lyon", text="A city in France."),
        Passage(id="1", title="Lyon: Rivers", text="Two of them."),
    ]


def test_contents_begin_with_the_title_unless_it_is_given(tmp_path):
    assert list(iter_passages(write_rows(tmp_path / "wiki-18.jsonl", FLASHRAG))) == [
        Passage(id="0", title="Lyon", text="A city in France.\nOn two rivers."),
        Passage(id="1", text="Lyon is a city."),
        Passage(id="2", title="Lyon", text="A city."),
        Passage(id="3", title="Lyon", text="A city."),
        Passage(id="4", title="Lyon", text="A city.\nOn two rivers."),
    ]


@pytest.mark.parametrize("name", ["p.jsonl", "p.tsv"])
def test_a_packed_file_holds_the_same_passages(tmp_path, name):
    content = b"id\ttext\ttitle\n1\tA city\tLyon\n" if name == "p.tsv" else b'{"id": "1", "title": "Lyon", "text": "A city"}\n'
    (tmp_path / name).write_bytes(content)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    assert (
        list(iter_passages(tmp_path / f"{name}.gz"))
        == list(iter_passages(tmp_path / name))
        == [Passage(id="1", title="Lyon", text="A city")]
    )


def test_the_files_of_one_dump_may_count_their_passages_alike(tmp_path):
    write_rows(tmp_path / "text-list-100-sec.jsonl", ATLAS)
    write_rows(tmp_path / "infobox.jsonl.gz", ATLAS[:1])
    assert [passage.id for passage in iter_passages(tmp_path)] == ["infobox:0", "text-list-100-sec:0", "text-list-100-sec:1"]


def test_the_number_of_packed_passages_is_estimated(tmp_path):
    rows = [{"id": str(number), "contents": f'"A title"\nword{number:05d} {number * 7919 % 99991} ' * 3} for number in range(5_000)]
    assert estimate_count(write_rows(tmp_path / "p.jsonl.gz", rows)) == pytest.approx(len(rows), rel=0.15)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", r"p\.jsonl\.gz: is damaged, or no gzip file"),
        (gzip.compress(b'{"id": "1", "contents": "a"}\n' * 1000)[:-20], r"p\.jsonl\.gz: is damaged, or no gzip file"),
        (gzip.compress(b'{"id": "1", "contents": "a"}\n{"id": "2"}\n'), r"p\.jsonl\.gz:2: field 'contents'"),
        (gzip.compress(b'{"id": "1", "section": "", "text": "a"}\n{"id": "2", "section": ""}\n'), r"p\.jsonl\.gz:2: field 'text'"),
    ],
    ids=["not packed", "cut off", "no contents", "no text"],  # packed bytes have the time in them, and workers must agree on ids
)
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path, content, message):
    (tmp_path / "p.jsonl.gz").write_bytes(content)
    with pytest.raises(RecordError, match=message):
        list(iter_passages(tmp_path / "p.jsonl.gz"))


def test_an_oracle_index_also_holds_the_questions_own_paragraphs(tmp_path):
    dump, question = write_rows(tmp_path / "dump.jsonl", ATLAS), tmp_path / "q.jsonl"
    own = [{"id": "q:0", "title": "Oslo", "text": "A capital."}]
    question.write_text(json.dumps({"id": "q", "text": "Where is Oslo?", "passages": own}) + "\n")

    assert main(["index", str(dump), "--output", str(tmp_path / "index"), "--add", str(question)]) == 0
    assert [passage.id for passage in Corpus(tmp_path / "index")] == ["0", "1", "q:0"]


def test_an_update_does_not_forget_the_added_paragraphs(tmp_path, capsys):
    write_records(tmp_path / "p.jsonl", [Passage(id="1", text="Lyon is a city.")])
    (tmp_path / "q.jsonl").write_text('{"id": "q", "text": "?", "passages": [{"id": "q:0", "text": "Oslo is a capital."}]}\n')
    build = ["index", str(tmp_path / "p.jsonl"), "--output", str(tmp_path / "index")]
    assert main([*build, "--add", str(tmp_path / "q.jsonl")]) == 0
    assert main([*build, "--update"]) == 2
    assert "was built with --add" in capsys.readouterr().err
