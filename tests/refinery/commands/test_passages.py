import pytest

from refinery.cli import main
from refinery.contract.records import Passage, read_records
from refinery.passages.documents import reader_process


@pytest.fixture
def go(tmp_path, capsys):
    """Run the command over the folder; gives the exit code and both outputs."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lyon.txt").write_text("Lyon is a city. " * 10)

    def run(*options: str):
        code = main(["passages", str(tmp_path / "docs"), "--output", str(tmp_path / "p.jsonl"), *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_the_command_prints_what_changed(go, tmp_path):
    assert go()[:2] == (
        0,
        f"{tmp_path}/p.jsonl: 1 passages of 1 documents (100 words, overlap 0).\nDocuments: 1 added, 0 changed, 0 removed, 0 unchanged.\n",
    )
    (tmp_path / "docs" / "oslo.md").write_text("Oslo")
    assert go()[1].endswith("Documents: 1 added, 0 changed, 0 removed, 1 unchanged.\n")
    (tmp_path / "docs" / "bad.md").write_bytes(bytes(range(256)))
    assert go("--skip-unreadable")[1].endswith("Documents: 0 added, 0 changed, 0 removed, 2 unchanged, 1 unreadable.\n")


def test_settings_of_an_earlier_call_are_kept_until_a_rewrite(go, tmp_path):
    assert go("--words", "8", "--overlap", "2")[0] == 0
    before = read_records(tmp_path / "p.jsonl", Passage)
    assert go()[0] == 0
    assert read_records(tmp_path / "p.jsonl", Passage) == before
    code, _, error = go("--words", "20")
    assert (code, error.count("\n"), "was cut with 8 words, overlap 2, not 20 words" in error) == (2, 1, True)
    assert "(20 words, overlap 2)" in go("--words", "20", "--rewrite")[1]


@pytest.mark.parametrize("options", [["--words", "0"], ["--words", "10", "--overlap", "6"], ["--overlap", "-1"]])
def test_settings_that_cannot_be_used_leave_nothing_behind(go, tmp_path, options):
    code, _, error = go(*options)
    assert (code, error.count("\n"), error.startswith(("error: --words", "error: --overlap"))) == (2, 1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


def test_a_folder_that_is_missing_leaves_nothing_behind(tmp_path, capsys):
    assert main(["passages", str(tmp_path / "nowhere"), "--output", str(tmp_path / "out" / "p.jsonl")]) == 2
    assert "nowhere: is not a folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_links_out_of_the_folder_are_read_on_request(go, tmp_path):
    (tmp_path / "secret.txt").write_text("A secret.")
    (tmp_path / "docs" / "key.txt").symlink_to("../secret.txt")
    assert "1 added" in go()[1]
    assert "1 added" in go("--follow-links")[1]
    assert "1 removed" in go()[1]


def test_a_document_that_stops_the_clock_is_named_and_the_others_are_cut(go, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(reader_process, "_SECONDS", 1)
    monkeypatch.setattr(reader_process, "_SECONDS_PER_MB", 0)
    (tmp_path / "docs" / "endless.md").write_text("![[" * 200_000)
    assert go()[0] == 2
    assert "endless.md: was not read within 1 seconds. Divide it, or remove it." in caplog.text
    assert "1 added, 0 changed, 0 removed, 0 unchanged, 1 unreadable" in go("--skip-unreadable")[1]
