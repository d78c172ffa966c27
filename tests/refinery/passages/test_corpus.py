import pytest

from refinery.contract.records import Passage
from refinery.errors import RecordError
from refinery.passages.corpus import Corpus, batches, corpus_hash, write_corpus
from refinery.passages.decontaminate import contamination_check

PASSAGES = [Passage(id=f"é{number}", title="T\u2028", text="line\nbreak " * number) for number in range(5)]


def write(folder, passages=PASSAGES, **options):
    return write_corpus(passages, folder, total=len(passages), **options)


def test_what_is_written_is_read_back_by_position(tmp_path):
    written = write(tmp_path)
    corpus = Corpus(tmp_path)
    assert (len(corpus), list(corpus), corpus[1:3]) == (5, PASSAGES, PASSAGES[1:3])
    assert (written.num_passages, written.num_dropped) == (5, 0)
    with pytest.raises(IndexError):
        corpus[5]


def test_parts_are_bounded_in_passages_and_in_bytes_and_cover_the_corpus(tmp_path):
    write(tmp_path)
    corpus = Corpus(tmp_path)
    for most, most_bytes in ((2, 1 << 24), (9, 100), (1, 1), (9, 1 << 24)):
        parts = corpus.parts(most=most, most_bytes=most_bytes)
        assert [passage for start, stop in parts for passage in corpus.read(start, stop)] == PASSAGES
        assert max(stop - start for start, stop in parts) <= most
    assert corpus.parts(most=9, most_bytes=1) == [(n, n + 1) for n in range(5)]


def test_a_corpus_has_one_hash_in_memory_and_on_disk(tmp_path):
    assert write(tmp_path).corpus_hash == corpus_hash(PASSAGES)
    for other in (PASSAGES[::-1], PASSAGES[1:], [PASSAGES[0].model_copy(update={"title": ""}), *PASSAGES[1:]]):
        assert corpus_hash(other) != corpus_hash(PASSAGES)


def test_an_id_used_twice_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"passages\.jsonl:6: passage id 'é0' is used twice"):
        write(tmp_path, [*PASSAGES, PASSAGES[0]])


def test_a_corpus_without_passages_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"no passages to index \(5 were dropped\)"):
        write(tmp_path, drop=lambda passage: True)


def test_batches_are_bounded_in_passages_and_in_characters():
    passages = [Passage(id=str(number), text="x" * size) for number, size in enumerate([10, 10, 10, 5_000_000, 10, 10])]
    assert [len(batch) for batch in batches(passages, most=2, most_characters=1_000_000)] == [2, 2, 2]
    assert [len(batch) for batch in batches(passages, most=4, most_characters=1_000)] == [4, 2]
    assert [passage.id for batch in batches(passages, start=4, most=4) for passage in batch] == ["4", "5"]


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("Quiz: who directed the film, Dune?", True),
        ("WHO  DIRECTED\nthe film 'Dune'", True),
        ("Who directed the filmed Dune?", False),
        ("Who directed the film?", False),
        ("", False),
    ],
)
def test_a_passage_with_the_words_of_a_question_is_left_out(text, dropped):
    check = contamination_check(["Who directed the film Dune?", "Lyon?"])
    assert check(Passage(id="p", title="Lyon", text=text)) is dropped


def test_a_question_without_spaces_between_its_words_is_found_inside_a_text():
    check = contamination_check(["灯塔建于哪一年？"])
    assert check(Passage(id="p", text="问题：灯塔建于哪一年，何人设计"))
    assert not check(Passage(id="p", text="灯塔建于一八七四年"))
