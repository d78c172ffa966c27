"""A file of passages and the folder that it was cut from: brought up to date by what changed."""

import io
import random
import re

import pytest

from refinery.contract.records import Passage, read_records, write_records
from refinery.errors import RecordError
from refinery.passages import passages_file
from refinery.passages.passages_file import manifest_file, stored_settings, write_passages
from refinery.passages.settings import DEFAULT_SETTINGS, SplitSettings
from refinery.passages.sources import iter_passages

SHORT = SplitSettings(words_per_passage=10, overlap_words=2)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "lyon.md").write_text("# Lyon\nA city.\n## Rivers\nRhone and Saone.")
    (tmp_path / "docs" / "deep" / "oslo.txt").write_text("Oslo is a city. " * 20)
    return tmp_path / "docs"


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out" / "passages.jsonl"


@pytest.fixture
def cut(folder, output):
    def write(settings=DEFAULT_SETTINGS, **options):
        return write_passages(folder, output, settings, **options)

    return write


def kinds(written):
    return written.added, written.changed, written.removed, written.unchanged


def test_the_passages_are_those_of_the_folder(folder, output, cut):
    written = cut(SHORT)
    assert read_records(output, Passage) == list(iter_passages(folder, SHORT))
    assert kinds(written) == (["deep/oslo.txt", "lyon.md"], [], [], [])
    assert written.num_passages == len(read_records(output, Passage))
    assert stored_settings(output) == SHORT
    assert sorted(path.name for path in output.parent.iterdir()) == ["passages.jsonl", "passages.manifest.json"]


def test_only_what_changed_is_read_again(folder, output, cut, monkeypatch):
    cut()
    (folder / "lyon.md").write_text("# Lyon\nA large city.")
    (folder / "bern.txt").write_text("Bern is a city.")
    (folder / "deep" / "oslo.txt").rename(folder / "deep" / "oslo_city.txt")
    (folder / "new.txt").write_text("New.")
    cut()
    read = []
    real = passages_file.read_document
    monkeypatch.setattr(passages_file, "read_document", lambda content, path: read.append(path.name) or real(content, path))
    (folder / "lyon.md").write_text("# Lyon\nA city again.")
    (folder / "new.txt").unlink()
    (folder / "added.txt").write_text("Added.")
    assert kinds(cut()) == (["added.txt"], ["lyon.md"], ["new.txt"], ["bern.txt", "deep/oslo_city.txt"])
    assert read == ["added.txt", "lyon.md"]
    assert read_records(output, Passage) == list(iter_passages(folder))


def test_any_sequence_of_changes_gives_what_a_new_file_would_hold(folder, output, cut):
    rng = random.Random(0)
    for _ in range(30):
        path = folder / f"{rng.randrange(6)}.md"
        if path.exists() and rng.random() < 0.4:
            path.unlink()
        else:
            path.write_text("\n\n".join("## A" if rng.random() < 0.3 else f"Text {rng.random()}." for _ in range(rng.randrange(5))))
        cut()
        assert read_records(output, Passage) == list(iter_passages(folder))


def test_other_settings_are_refused_unless_a_rewrite_is_asked_for(folder, output, cut):
    cut()
    with pytest.raises(
        RecordError, match=r"was cut with 100 words, overlap 0, not 10 words, overlap 2. Choose another --output, or cut it"
    ):
        cut(SHORT)
    assert len(cut(SHORT, rewrite=True).unchanged) == 2
    assert read_records(output, Passage) == list(iter_passages(folder, SHORT))


@pytest.mark.parametrize("damage", ["other", "missing", "older"])
def test_a_manifest_that_does_not_fit_the_passages_leads_to_a_full_cut(folder, output, cut, damage):
    cut()
    if damage == "other":
        output.write_text('{"id": "x", "text": "another"}\n')
    elif damage == "missing":
        output.unlink()
    else:
        manifest_file(output).write_text(re.sub('"cut_version": [0-9]+', '"cut_version": 0', manifest_file(output).read_text()))
    cut()
    assert read_records(output, Passage) == list(iter_passages(folder))


def test_a_stop_at_any_moment_is_repaired_by_the_next_call(folder, output, cut, monkeypatch):
    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    cut()
    before = output.read_bytes()
    (folder / "lyon.md").write_text("# Lyon\nChanged.")
    for place in ("read_document", "write_json", "file_fingerprint"):
        with monkeypatch.context() as patched:
            patched.setattr(passages_file, place, stop)
            with pytest.raises(Stop):
                cut()
        assert output.read_bytes() == before
    cut()
    output.write_bytes(before)  # a stop after the manifest was written
    cut()
    assert read_records(output, Passage) == list(iter_passages(folder))


def test_a_file_that_others_wrote_is_not_overwritten(output, cut):
    output.parent.mkdir()
    write_records(output, [Passage(id="mine", text="mine")])
    with pytest.raises(RecordError, match=r"was not written by `refinery passages`; it has no passages.manifest.json"):
        cut(rewrite=True)
    output.unlink()
    manifest_file(output).write_text("{}")
    with pytest.raises(RecordError, match=r"passages\.manifest\.json: is not the manifest of passages. Delete it"):
        cut()


def test_documents_that_cannot_be_read_are_all_named_and_left_out_on_request(folder, output, cut, caplog):
    (folder / "bad.txt").write_bytes(bytes(range(256)))
    (folder / "bad.md").write_bytes(bytes(range(256)))
    (folder / "worse.docx").write_bytes(b"no")
    with pytest.raises(RecordError, match=r"docs: bad.md, bad.txt, worse.docx cannot be read, for the reasons above. .*--skip-unreadable"):
        cut()
    assert not list(output.parent.iterdir())
    assert [message.partition(",")[0] for message in caplog.messages] == ["bad.md", "worse.docx: is broken"]
    assert caplog.messages[0].startswith("bad.md, bad.txt: is not UTF-8, nor text in another encoding")
    written = cut(skip_unreadable=True)
    assert (len(written.documents), written.unreadable) == (2, ["bad.md", "bad.txt", "worse.docx"])


def test_documents_without_text_are_named(folder, cut, caplog):
    (folder / "empty.md").write_text("## Only a heading\n")
    assert cut().num_passages == 3
    assert "1 document(s) hold no text: empty.md." in caplog.text
    for name in ("lyon.md", "deep/oslo.txt"):
        (folder / name).write_text("")
    with pytest.raises(RecordError, match="its documents hold no text"):
        cut()


def test_a_name_that_is_not_of_json_lines_is_refused(folder, tmp_path):
    with pytest.raises(RecordError, match=r"passages\.parquet: passages are written as JSON Lines"):
        write_passages(folder, tmp_path / "passages.parquet", DEFAULT_SETTINGS)


def test_html_pdf_and_word_files_are_cut_beside_the_others(folder, output, cut):
    import docx

    (folder / "page.html").write_text("<h1>Page</h1><p>Text.")
    docx.Document().save(file := io.BytesIO())
    (folder / "empty.docx").write_bytes(file.getvalue())
    assert cut().added == ["deep/oslo.txt", "empty.docx", "lyon.md", "page.html"]
    assert [passage.title for passage in read_records(output, Passage) if passage.id == "page.html:1"] == ["Page"]
