import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refinery.contract.records import Passage, write_records
from refinery.errors import RecordError
from refinery.passages.sources import estimate_count, iter_passages

PASSAGES = [Passage(id="1", title='The "Lyon"', text='A city\u2028in "France", of 500\u00a0000.'), Passage(id="2", title="", text="Oslo")]


def write_dpr(path, rows):
    quoted = ['"' + text.replace('"', '""') + '"' for _, text, _ in rows]
    lines = [f"{id}\t{text}\t{title}" for (id, _, title), text in zip(rows, quoted, strict=True)]
    path.write_text("\n".join(["id\ttext\ttitle", *lines]) + "\n", encoding="utf-8")


def test_json_lines_parquet_and_dprs_table_hold_the_same_passages(tmp_path):
    write_records(tmp_path / "p.jsonl", PASSAGES)
    pq.write_table(pa.Table.from_pylist([passage.model_dump() for passage in PASSAGES]), tmp_path / "p.parquet")
    write_dpr(tmp_path / "p.tsv", [("1", PASSAGES[0].text, 'The "Lyon"'), ("2", "Oslo", "")])
    for name in ("p.jsonl", "p.parquet", "p.tsv"):
        assert list(iter_passages(tmp_path / name)) == PASSAGES, name


def test_parquet_ids_may_be_numbers_and_titles_missing(tmp_path):
    pq.write_table(pa.table({"id": [7], "text": ["Lyon"], "embeddings": [[0.5]]}), tmp_path / "p.parquet")
    assert list(iter_passages(tmp_path / "p.parquet")) == [Passage(id="7", text="Lyon")]


def test_documents_are_cut_into_passages_of_100_words_that_do_not_overlap(tmp_path):
    words = [f"w{number}" for number in range(250)]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "about_lyon.txt").write_text(" ".join(words), encoding="utf-8")
    (tmp_path / "oslo.md").write_text("# Oslo, the city\n\nOslo is a\ncity.", encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\xff")
    found = list(iter_passages(tmp_path))
    assert [passage.id for passage in found] == ["deep/about_lyon.txt:1", "deep/about_lyon.txt:2", "deep/about_lyon.txt:3", "oslo.md:1"]
    assert [word for passage in found[:3] for word in passage.text.split()] == words
    assert found[0].title == "about lyon"
    assert found[3] == Passage(id="oslo.md:1", title="Oslo, the city", text="Oslo is a city.")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", b'{"id": "1", "text": "a"}\n{"id": "2", "text": "\xff"}\n', r"p\.jsonl:2: not UTF-8 at byte 21"),
        ("p.jsonl", b'{"id": "1", "text": "\\ud800"}\n', r"p\.jsonl:1: "),
        ("p.tsv", b"id\ttext\ttitle\n1\tok\tT\n2\t\xff\tT\n", r"p\.tsv:3: not UTF-8 at byte 2 of the line"),
        ("p.tsv", b"id\ttext\ttitle\n1\tno title\n", r"p\.tsv:2: has 2 columns. Expected DPR's three"),
        ("p.parquet", b"not parquet", r"p\.parquet: not a Parquet file"),
        ("p.csv", b"1,Lyon", r"p\.csv: '\.csv' is not a format of passages"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordError, match=message):
        list(iter_passages(tmp_path / name))


def test_a_documents_byte_order_mark_is_not_part_of_its_heading(tmp_path):
    (tmp_path / "a.md").write_text("# Lyon\nA city.", encoding="utf-8-sig")
    assert list(iter_passages(tmp_path)) == [Passage(id="a.md:1", title="Lyon", text="A city.")]


def test_a_parquet_file_with_bytes_that_are_no_text_is_named(tmp_path):
    text = pa.array([b"fine", b"\xff"], type=pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": ["1", "2"], "text": text}), tmp_path / "p.parquet")
    with pytest.raises(RecordError, match=r"p\.parquet: not UTF-8 in rows 1 to 2"):
        list(iter_passages(tmp_path / "p.parquet"))


def test_an_id_does_not_change_when_another_document_does(tmp_path):
    (tmp_path / "b.md").write_text("# Lyon\nA city.\n## Rivers\nTwo of them.")
    before = {passage.id: passage for passage in iter_passages(tmp_path)}
    assert list(before) == ["b.md:1", "b.md#rivers:1"]
    for name in ("a.txt", "b.txt", "b/c.md", "z.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("More text.")
        after = [passage for passage in iter_passages(tmp_path) if passage.id in before]
        assert after == list(before.values())


def test_the_number_of_passages_is_estimated_from_a_beginning(tmp_path):
    rows = [Passage(id=str(number), title="A title", text=f"word{number:04d} " * (20 + number % 10)) for number in range(5_000)]
    write_records(tmp_path / "p.jsonl", rows)
    write_dpr(tmp_path / "p.tsv", [(row.id, row.text, row.title) for row in rows])
    for name in ("p.jsonl", "p.tsv"):
        assert estimate_count(tmp_path / name) == pytest.approx(len(rows), rel=0.1)


def test_the_number_of_passages_of_documents_is_estimated_from_the_first(tmp_path):
    for number in range(30):
        (tmp_path / f"{number:02d}.txt").write_text("one two three four.\n\n" * 2_000)
    assert estimate_count(tmp_path) == len(list(iter_passages(tmp_path))) == 30 * 80
