"""Run one peer over prompts: `PYTHON -I driver.py NAME BASE_URL ROWS CONCURRENCY OUTPUT [--warm]`. Prints JSON with `rows` and `seconds`.

It imports nothing from this project, so that any interpreter can run it. ROWS is a JSONL file of objects with `id` and `prompt`, OUTPUT a
folder for the peer's files. The peer is the file NAME.py beside this one, with

    label(base_url: str, rows: list[dict[str, str]], concurrency: int, output: Path) -> Iterable[str]

which gives the text of each reply that the peer kept. A row counts if its reply can be read, as JSON with sub-questions. `--warm` labels
the first row once before timing starts, so that imports are not measured.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path


def main(arguments):
    """Label the rows, and print the number of kept rows and the elapsed seconds."""
    name, base_url, rows_file, concurrency, output = arguments[:5]
    spec = importlib.util.spec_from_file_location(f"peer_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    with open(rows_file, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if "--warm" in arguments:
        _run(peer, base_url, rows[:1], concurrency, Path(output, "warm"))
    started = time.perf_counter()
    kept = _run(peer, base_url, rows, concurrency, Path(output, "measured"))
    print(json.dumps({"rows": kept, "seconds": time.perf_counter() - started}))


def _run(peer, base_url, rows, concurrency, output):
    output.mkdir(parents=True)
    return sum(map(_is_label, peer.label(base_url, rows, int(concurrency), output)))


def _is_label(text):
    try:
        return isinstance(json.loads(text)["sub_questions"], list)
    except (TypeError, ValueError, KeyError):
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
