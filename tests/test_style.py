"""The form of our own code, where no linter checks it."""

from helpers.documents import PROJECT

FOLDERS = ("distill", "infer", "recipes", "refinery", "tests", "train")
MOST_LINES = 300


def test_no_module_is_over_300_lines():
    modules = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py")]
    lines = {str(path.relative_to(PROJECT)): len(path.read_text(encoding="utf-8").splitlines()) for path in modules}
    assert len(lines) > 500
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
