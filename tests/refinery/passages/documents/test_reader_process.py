"""Documents read in a process of their own: what it reads, what it may take, and what happens when it ends."""

import io
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import docx
import pytest

from refinery.errors import RecordError, UnreadableDocumentError
from refinery.passages.documents import reader_process
from refinery.passages.documents.read import parse_document
from refinery.passages.documents.reader_process import read_document
from refinery.runtime.concurrency.subprocesses import module_command, module_environment

ENDLESS = b"![[" * 200_000  # the parser of Markdown looks for the end of each of them in all of the rest


@pytest.fixture
def new_process(monkeypatch):
    """A process that other tests do not use; gives the process."""
    reader = reader_process._Reader()
    monkeypatch.setattr(reader_process, "_reader", lambda _: reader)
    return reader._running


def test_a_document_is_what_its_reader_finds(pdf):
    markdown = b"---\ntitle: The guide\n---\n# One\nText.\n\n- item\n\n| a |\n|---|\n| b |\n\n```\ncode\n```\n"
    for name, content in {"a.md": markdown, "b.pdf": pdf("Lyon is a city.", title="Cities"), "c.html": "<p>Besançon".encode()}.items():
        assert read_document(content, Path(name)) == parse_document(content, Path(name))


def test_a_document_that_takes_too_long_is_unreadable_and_the_next_is_read(monkeypatch, new_process):
    monkeypatch.setattr(reader_process, "_SECONDS", 0.4)
    monkeypatch.setattr(reader_process, "_SECONDS_PER_MB", 1)
    with pytest.raises(UnreadableDocumentError, match=r"^a\.md: was not read within 1 seconds\. Divide it, or remove it\.$"):
        read_document(ENDLESS, Path("a.md"))
    monkeypatch.setattr(reader_process, "_SECONDS", 60)
    assert read_document(b"Text.", Path("b.md")) == parse_document(b"Text.", Path("b.md"))


def test_a_document_that_ends_the_process_is_unreadable_and_the_next_is_read(new_process):
    process = new_process()
    threading.Timer(0.5, process.kill).start()
    with pytest.raises(UnreadableDocumentError, match=r"^a\.md: ended the process that reads documents \(status -9\)\. Save it again"):
        read_document(ENDLESS, Path("a.md"))
    assert read_document(b"Text.", Path("b.md")).elements


def test_a_process_that_ended_between_documents_is_started_again(new_process):
    read_document(b"Text.", Path("a.md"))
    new_process().kill()
    time.sleep(0.2)
    assert read_document(b"Text.", Path("b.md")).elements


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit memory in this way")
def test_a_document_that_needs_too_much_memory_is_unreadable(monkeypatch, new_process):
    monkeypatch.setattr(reader_process, "_MOST_MEMORY", 600 << 20)
    docx.Document().save(file := io.BytesIO())
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as packed, pytest.warns(UserWarning, match="Duplicate name"):
        packed.writestr("word/document.xml", bytes(600 << 20))
    with pytest.raises(UnreadableDocumentError, match=r"^a\.docx: needs too much memory"):
        read_document(file.getvalue(), Path("a.docx"))


def test_what_a_reader_finds_out_is_in_the_log_of_the_process_that_asked(pdf, caplog):
    read_document(pdf("The rules are set by the harbour master.", gap=0), Path("glued.pdf"))
    assert "glued.pdf: its words run into one another" in caplog.text


def test_a_broken_document_is_unreadable_with_its_reason_and_no_library_prints_its_own(capfd):
    with pytest.raises(UnreadableDocumentError, match=r"^a\.docx: is broken, protected or not \.docx"):
        read_document(b"no", Path("a.docx"))
    for content in (b'<?xml version="1.0"?><rss><title>News</title></rss>', b"https://example.org/page", b"notes/about.html"):
        read_document(content, Path("a.html"))
    assert capfd.readouterr() == ("", "")


def test_a_process_that_does_not_start_is_an_error_that_says_how_to_see_why(monkeypatch, new_process):
    monkeypatch.setattr(reader_process, "module_command", lambda *_: [sys.executable, "-c", "no"])
    with pytest.raises(RecordError, match=r"did not start. Run `.* -c no` to see why") as caught:
        read_document(b"Text.", Path("a.md"))
    assert not isinstance(caught.value, UnreadableDocumentError)


def test_a_file_beside_the_documents_does_not_take_the_place_of_a_library(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    command = module_command("refinery.contract.records")
    assert subprocess.run(command, cwd=tmp_path, env=module_environment(), check=False).returncode == 0
