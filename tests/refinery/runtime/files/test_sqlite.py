import contextlib
import sqlite3

import pytest

from refinery.runtime.files.sqlite import open_database


def test_what_one_has_committed_another_reads_while_it_writes(tmp_path):
    path = tmp_path / "deep" / "values.sqlite"
    with contextlib.closing(open_database(path)) as writer, contextlib.closing(open_database(path)) as reader:
        with writer:
            writer.execute("CREATE TABLE held (value TEXT)")
            writer.execute("INSERT INTO held VALUES ('kept')")
        writer.execute("INSERT INTO held VALUES ('not committed')")
        assert reader.execute("SELECT value FROM held").fetchall() == [("kept",)]


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a database, though long enough to look like one to sqlite " * 20)
    with pytest.raises(sqlite3.DatabaseError, match="file is not a database"):
        open_database(tmp_path / "file")
