"""What would make a test another one in the next run, though its seeds are set."""

from pathlib import Path


def test_no_vocabulary_of_the_tests_is_trained():
    """`tokenizers` trains in the order of a hash that differs by process, so that seeded weights fall on other pieces in every run."""
    trained_by = "train_from_" + "iterator("
    folder = Path(__file__).parent
    assert [str(path.relative_to(folder)) for path in folder.rglob("*.py") if trained_by in path.read_text(encoding="utf-8")] == []
