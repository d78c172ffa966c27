"""What would make a test another one in the next run, though its seeds are set."""

import re
from pathlib import Path

# `tokenizers` trains these two in the order of a hash that differs by process: seeded weights would fall on other pieces in every run.
_TRAINED_BY_HASH = re.compile(r"Unigram" r"Trainer\(|WordPiece" r"Trainer\(|BertWordPiece" r"Tokenizer\(")


def test_no_unigram_or_wordpiece_vocabulary_of_the_tests_is_trained():
    folder = Path(__file__).parent
    files = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    assert [name for name, source in files.items() if _TRAINED_BY_HASH.search(source)] == []
