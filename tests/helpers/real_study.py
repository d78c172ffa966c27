"""The real study's folder, and its questions."""

from functools import cache
from pathlib import Path

from refinery.questions.base import read_questions

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "recipes" / "real"


@cache
def questions(part):
    files = [STUDY / "data" / name for name in (f"hotpotqa/{part}.json", f"two_wiki/{part}.json", f"musique/{part}.jsonl")]
    return read_questions(files, reader="by_folder")
