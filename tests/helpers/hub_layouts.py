"""The layouts of datasets as copies on the hub hold them: how a row of the release becomes a row of the copy.

`file` names real rows below shared/data. `lacks` are fields of a Question that a copy cannot give, and `has_ids` says whether rows have
ids of their own; others are numbered within their split. `rows_of` reads a file of the release, and `write` writes rows as the release
does: by default as JSON Lines. `hub_copies.py` has the copies, with tiny rows.
"""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def json_rows(path: Path) -> list[Row]:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.split("\n") if line.strip()]


def write_json_lines(rows: tuple[Row, ...], folder: Path) -> Path:
    (folder / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder / "dev.jsonl"


@dataclass(frozen=True)
class Layout:
    reader: str
    repository: str
    rows: tuple[Row, ...]
    to_hub: Callable[[Row], Row | list[Row]] = lambda row: row
    file: str | None = None
    config: str | None = None
    lacks: frozenset[str] = frozenset()
    has_ids: bool = True
    rows_of: Callable[[Path], list[Row]] = json_rows
    write: Callable[[tuple[Row, ...], Path], Path] = write_json_lines


def columns(rows: list[Row], names: dict[str, str] | None = None) -> Row:
    """Rows as a column of lists; `names` renames the fields, which are otherwise those of the first row."""
    names = names or {name: name for name in (rows[0] if rows else {})}
    return {new: [row.get(old) for row in rows] for old, new in names.items()}


def hotpot(row: Row, *, text: str = "sentences") -> Row:
    titles, facts = zip(*row["context"], strict=True), zip(*row["supporting_facts"], strict=True)
    context = dict(zip(("title", text), map(list, titles), strict=True))
    named = {"id": row["_id"], "context": context, "supporting_facts": dict(zip(("title", "sent_id"), map(list, facts), strict=True))}
    return {name: row[name] for name in ("question", "answer", "type") if name in row} | named


def two_wiki(row: Row) -> Row:
    return hotpot(row) | {"evidences": row["evidences"]}


def two_wiki_text(row: Row) -> Row:
    nested = ("context", "supporting_facts", "evidences")
    return {name: json.dumps(value) if name in nested else value for name, value in row.items()}


def two_wiki_columns(row: Row) -> Row:
    triples = [dict(zip(("fact", "relation", "entity"), triple, strict=True)) for triple in row["evidences"]]
    held = hotpot(row, text="content") | {"evidences": columns(triples), "_id": row["_id"]}
    return {name: value for name, value in held.items() if name != "id"}


def ai2(row: Row) -> Row:
    choices = {name: [choice[name] for choice in row["question"]["choices"]] for name in ("text", "label")}
    return row | {"question": row["question"]["stem"], "choices": choices}


def openbookqa(row: Row) -> Row:
    held = ai2(row)
    return {"question_stem": held.pop("question")} | held


def cwq(row: Row) -> Row:
    return row | ({"answers": columns(row["answers"])} if "answers" in row else {})


def grailqa(row: Row) -> Row:
    answers = [{"entity_name": "", **answer, "answer_argument": str(answer["answer_argument"])} for answer in row["answer"]]
    return {"qid": str(row["qid"]), "question": row["question"], "level": row.get("level"), "answer": columns(answers)}


def graphquestions(row: Row) -> Row:
    return {"qid": str(row["qid"]), "question": row["question"], "answer": row["answer"], "function": row.get("function_category")}


def strategyqa(row: Row) -> Row:
    return {name: row[name] for name in ("qid", "question", "answer")} | {"facts": " ".join(row.get("facts", []))}


def multiarith(row: Row) -> Row:
    return {"question": row["sQuestion"], "final_ans": f"{row['lSolutions'][0]:g}"}


def oasst(row: Row) -> list[Row]:
    def flat(message: Row, parent: str | None) -> list[Row]:
        held = {name: message.get(name) for name in ("message_id", "text", "rank", "deleted")} | {"parent_id": parent}
        return [held, *(row for reply in message["replies"] for row in flat(reply, message["message_id"]))]

    return flat(row["prompt"], None)


def popqa(row: Row) -> Row:
    return row | {"id": int(row["id"].removeprefix("test_")), "s_pop": int(row["s_pop"])}


def read_table(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def write_table(rows: tuple[Row, ...], folder: Path) -> Path:
    with (folder / "popQA.tsv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        table.writeheader()
        table.writerows(rows)
    return folder / "popQA.tsv"


def asqa_rows(path: Path) -> list[Row]:
    return [row | {"sample_id": row_id} for rows in json.loads(path.read_text()).values() for row_id, row in rows.items()]


def write_asqa(rows: tuple[Row, ...], folder: Path) -> Path:
    (folder / "ASQA.json").write_text(json.dumps({"dev": {row["sample_id"]: row for row in rows}}))
    return folder / "ASQA.json"


def trivia_rows(path: Path) -> list[Row]:
    """The rows with the text of each page's document, which the release has in files beside."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in sorted((path.parent.parent / "evidence").rglob("*.txt"))}
    rows = json.loads(path.read_text(encoding="utf-8"))["Data"]
    return [row | {"EntityPages": [page | {"text": texts[page["Filename"]]} for page in row.get("EntityPages", [])]} for row in rows]


def write_trivia(rows: tuple[Row, ...], folder: Path) -> Path:
    for page in rows[0]["EntityPages"]:
        document = folder / "evidence" / "wikipedia" / page["Filename"]
        document.parent.mkdir(parents=True)
        document.write_text(page["text"], encoding="utf-8")
    (folder / "qa").mkdir()
    (folder / "qa" / "wikipedia-dev.json").write_text(json.dumps({"Data": rows}))
    return folder / "qa" / "wikipedia-dev.json"


def trivia(row: Row) -> Row:
    pages = columns(row["EntityPages"], {"Filename": "filename", "Title": "title", "text": "wiki_context"})
    answer = {"value": row["Answer"]["Value"], "aliases": row["Answer"]["Aliases"]}
    return {"question_id": row["QuestionId"], "question": row["Question"], "entity_pages": pages, "answer": answer}
