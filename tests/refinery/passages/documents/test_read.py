import logging
import re
import sys
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.passages.documents.base import Block
from refinery.passages.documents.read import document_files, document_name, read_document


def test_hidden_files_are_left_out_and_others_are_counted_once(tmp_path, caplog):
    for name in ("b.md", "a/deep/c.TXT", ".git/x.md", ".hidden.md", "~$open.docx", "x.png", "y.png", "LICENSE"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    with caplog.at_level(logging.INFO):
        assert [document_name(path, tmp_path) for path in document_files(tmp_path)] == ["a/deep/c.TXT", "b.md"]
        document_files(tmp_path)
    assert caplog.messages == [f"{tmp_path}: 3 file(s) of other formats are not read: 2 .png, 1 without a suffix."]


def test_a_folder_without_documents_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"holds no documents \(\.txt, \.md"):
        document_files(tmp_path)
    with pytest.raises(RecordError, match=r"nowhere: is not a folder"):
        document_files(tmp_path / "nowhere")


def test_a_name_that_could_control_a_terminal_is_refused(tmp_path):
    (tmp_path / "a\x1b[2J\n.md").write_text("text")
    with pytest.raises(RecordError, match=r"the name of 'a\\x1b\[2J\\n\.md' holds characters that cannot be printed"):
        document_files(tmp_path)


@pytest.mark.parametrize(("suffix", "library"), [(".pdf", "pypdf"), (".docx", "docx"), (".html", "bs4")])
def test_a_format_whose_library_is_missing_says_what_to_install(monkeypatch, suffix, library):
    monkeypatch.setitem(sys.modules, library, None)
    message = f'a{suffix}: reading {suffix} needs {library}. Install it: pip install "rag-refinery[documents]"'
    with pytest.raises(RecordError, match=re.escape(message)):
        read_document(b"", Path(f"a{suffix}"))


def test_the_suffix_says_the_format_in_any_case():
    assert read_document(b"*Text*", Path("A.MARKDOWN")).elements == [Block("Text")]
    assert read_document(b"*Text*", Path("A.Txt")).elements == [Block("*Text*")]
