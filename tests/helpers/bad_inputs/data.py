"""Mistakes in questions, passages and labels."""

from helpers.bad_inputs.world import BadInput

LINE = '{"id": "q", "text": "Where is Lyon?", "answers": ["France"]}\n'
PASSAGE = '{"id": "p", "title": "Lyon", "text": "Lyon is a city."}\n'
RELEVANT = f'{{"question_id": "q", "question": "Where?", "passage": {PASSAGE.strip()}, "label": "relevant"}}\n'

DATA = [
    BadInput(
        "no such questions", "infer infer.yaml questions=[absent.jsonl]", ("absent.jsonl: cannot be read (No such file or directory)",)
    ),
    BadInput(
        "no questions in the file",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl: has no rows", "one Question per line"),
        {"q.jsonl": ""},
    ),
    BadInput(
        "questions that are not JSON",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:2: not valid JSON",),
        {"q.jsonl": LINE + "Where?\n"},
    ),
    BadInput(
        "questions cut off in a line", "infer infer.yaml questions=[q.jsonl]", ("q.jsonl:2: not valid JSON",), {"q.jsonl": LINE + LINE[:20]}
    ),
    BadInput(
        "a JSON array as JSON Lines",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: begins a JSON array", "Write one object per line"),
        {"q.jsonl": f"[\n{LINE.strip()}\n]\n"},
    ),
    BadInput(
        "a JSON array in one line",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: begins a JSON array", "Write one object per line"),
        {"q.jsonl": f"[{LINE.strip()}]\n"},
    ),
    BadInput(
        "questions in UTF-16",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: is UTF-16. Save the file as UTF-8",),
        {"q.jsonl": LINE.encode("utf-16")},
    ),
    BadInput(
        "questions in Latin 1",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: not UTF-8 at byte", "Save the file as UTF-8"),
        {"q.jsonl": LINE.replace("Lyon", "Orl\xe9ans").encode("latin-1")},
    ),
    BadInput("questions that are a folder", "infer infer.yaml questions=[answered]", ("answered: cannot be read (Is a directory)",)),
    BadInput(
        "another dataset's columns",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: field 'text': is missing. The row has 'id', 'question', 'golden_answers'",),
        {"q.jsonl": '{"id": "q", "question": "Where?", "golden_answers": ["x"]}\n'},
    ),
    BadInput(
        "an unknown column",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: field 'topic'",),
        {"q.jsonl": LINE.replace('"id"', '"topic": 1, "id"')},
    ),
    BadInput(
        "an answer that is not a list",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: field 'answers'", "array"),
        {"q.jsonl": LINE.replace('["France"]', '"France"')},
    ),
    BadInput(
        "an empty question",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl:1: field 'text'",),
        {"q.jsonl": LINE.replace("Where is Lyon?", " ")},
    ),
    BadInput(
        "an id used twice",
        "infer infer.yaml questions=[q.jsonl]",
        ("q.jsonl: question id 'q' is used twice. Ids must be unique",),
        {"q.jsonl": LINE * 2},
    ),
    BadInput(
        "a split with a slash",
        "distill distill.yaml questions=[q.jsonl]",
        ("q.jsonl:1: field 'split'",),
        {"q.jsonl": LINE.replace('"id"', '"split": "../x", "id"')},
    ),
    BadInput(
        "questions without answers to label",
        "distill knowledge.yaml",
        ("q.jsonl: no question has gold answers, and task 'self_knowledge' needs them. Add `answers`",),
        {
            "q.jsonl": '{"id": "q", "text": "Where?"}\n',
            "knowledge.yaml": {
                "task": "self_knowledge",
                "questions": ["q.jsonl"],
                "output_dir": "run",
                "options": {"by": "student"},
                "target": {"base": "base"},
            },
        },
    ),
    BadInput(
        "no such passages", "infer rag.yaml retriever.passages=absent.jsonl", ("absent.jsonl: cannot be read (No such file or directory)",)
    ),
    BadInput("no passages in the file", "infer rag.yaml retriever.passages=p.jsonl", ("p.jsonl: has no rows",), {"p.jsonl": ""}),
    BadInput(
        "passages without text",
        "infer rag.yaml retriever.passages=p.jsonl",
        ("p.jsonl:1: field 'text'",),
        {"p.jsonl": '{"id": "p", "title": "Lyon"}\n'},
    ),
    BadInput(
        "passages of another format",
        "infer rag.yaml retriever.passages=p.csv",
        ("p.csv: '.csv' is not a format of passages", ".jsonl"),
        {"p.csv": "id,text\n"},
    ),
    BadInput(
        "a passage id used twice",
        "infer rag.yaml retriever.passages=p.jsonl",
        ("p.jsonl", "id 'p' is used twice"),
        {"p.jsonl": PASSAGE * 2},
    ),
    BadInput("a folder without documents", "index docs --output i", ("docs: holds no documents (.txt, .md",), {"docs/a.docx.bak": "x"}),
    BadInput(
        "passages that are not Parquet",
        "infer rag.yaml retriever.passages=p.parquet",
        ("p.parquet: not a Parquet file",),
        {"p.parquet": "x"},
    ),
    BadInput(
        "an index that is not one",
        "infer rag.yaml retriever.passages=null retriever.index=answered",
        ("answered: holds no finished index", "refinery index"),
    ),
    BadInput("no such labels", "train train.yaml data=[absent.jsonl]", ("absent.jsonl: cannot be read (No such file or directory)",)),
    BadInput(
        "labels of another task",
        "train train.yaml data=[questions.jsonl]",
        ("questions.jsonl:1: field 'question_id': is missing. The row has 'id'", "RelevanceLabel"),
    ),
    BadInput(
        "labels of one kind only",
        "train train.yaml data=[one.jsonl]",
        ("one.jsonl: all 2 rows are labeled 'relevant'",),
        {"one.jsonl": RELEVANT * 2},
    ),
]
