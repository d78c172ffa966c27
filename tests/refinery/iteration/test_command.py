"""`refinery iterate` as it is typed."""

import pytest
from helpers.documents import PROJECT

from refinery.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dry-run", "patiense=1"], "recipes/demo/iterate.yaml: patiense: unknown key. Did you mean 'patience'?"),
        (["rounds=1", "--dry", "patience=1"], "unrecognized arguments: --dry. Did you mean '--dry-run'?"),
    ],
)
def test_values_may_follow_an_option(monkeypatch, capsys, words, message):
    monkeypatch.chdir(PROJECT)
    try:
        code = main(["iterate", "recipes/demo/iterate.yaml", *words])
    except SystemExit as stopped:
        code = stopped.code
    assert (code, message in capsys.readouterr().err) == (2, True)
