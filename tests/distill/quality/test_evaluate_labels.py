"""`refinery evaluate-labels` on real annotated rows: the annotations' own labels, and a teacher whose mistakes are known."""

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from distill.__main__ import main as distill
from distill.quality.evaluate import evaluate_labels
from refinery.cli import main
from refinery.contract.records import Passage, write_records
from refinery.demo.teacher.server import serving
from refinery.questions.base import read_questions
from refinery.reporting.question_groups import groups_of

DATA = Path(__file__).parents[3] / "recipes" / "sample" / "data"
FILES = [DATA / name for name in ("hotpotqa/train.json", "two_wiki/train.json", "musique/train.jsonl", "strategyqa/train.json")]
QUESTIONS = {question.text: question for question in read_questions(FILES, reader="by_folder")}
AGAINST = [f"by_folder={path}" for path in FILES]


@pytest.fixture
def labeled(tmp_path):
    """Run a recipe over the sample's rows, and return its folder."""

    def run(name: str, task: str, **values) -> Path:
        recipe = {"task": task, "questions": list(map(str, FILES)), "reader": "by_folder", "output_dir": str(tmp_path / name)}
        shared = {"retriever": {"name": "candidates"}, "passages_per_query": 3, "max_failure_share": 1}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(recipe | shared | values))
        assert distill([str(tmp_path / f"{name}.yaml")]) == 0
        return tmp_path / name

    return run


@pytest.fixture
def evaluated(capsys):
    """Run the command: a dictionary for each line of its CSV, and what it said on standard error."""

    def run(*arguments: object) -> tuple[list[dict[str, str]], str]:
        capsys.readouterr()
        main(["evaluate-labels", *map(str, arguments), "--format", "csv"])
        printed = capsys.readouterr()
        return list(csv.DictReader(io.StringIO(printed.out))), printed.err

    return run


def means(line: dict[str, str], *names: str) -> list[float | None]:
    return [float(value) if (value := line.get(f"{name} mean")) else None for name in names]


def asked(prompt: str) -> str:
    """The text of the question that a prompt is about."""
    return next(line.removeprefix("Question: ") for line in reversed(prompt.splitlines()) if line.startswith("Question: "))


@pytest.mark.parametrize(
    ("task", "options", "against"),
    [
        ("relevance", {"by": "annotations"}, "passages that suffice"),
        ("decomposition", {"by": "annotations", "references": "kept"}, "annotated sub-questions"),
        ("decomposition", {"by": "annotations", "references": "resolved"}, "annotated sub-questions"),
    ],
)
def test_labels_from_the_annotations_are_all_right(labeled, evaluated, task, options, against):
    lines, _ = evaluated(labeled("run", task, options=options), "--against", *AGAINST)
    line = next(line for line in lines if line["against"] == against)
    assert means(line, "precision") == [1.0]
    if line["rejected"] == "0":
        assert means(line, "recall", "F1") == [1.0, 1.0]
    else:
        assert 0.5 < means(line, "recall")[0] < 1.0


def test_annotated_trajectories_are_right_where_a_search_found_the_passages(labeled, evaluated):
    run = labeled("run", "refinement", options={"kind": "multi_hop", "by": "annotations"})
    (line,), _ = evaluated(run)
    kept = 1 - int(line["rejected"]) / int(line["questions"])
    assert int(line["rejected"]) > 0
    assert means(line, "support recall", "em.squad", "f1.squad") == pytest.approx([kept] * 3)


def test_a_rejected_question_counts_as_missed(labeled, evaluated):
    with serving(lambda prompt: "I'm sorry, I can't help with that.") as server:
        run = labeled("run", "relevance", teacher={"base_url": server.base_url, "model": "demo-teacher"})
    lines, _ = evaluated(run)
    assert [line["rejected"] == line["questions"] for line in lines] == [True, True]
    assert [means(line, "precision", "recall", "F1", "accuracy") for line in lines] == [[None, 0.0, 0.0, None]] * 2


def relevance_reply(prompt: str, *, wrong_every: int) -> str:
    """The annotated passages of a listwise prompt; for each `wrong_every`-th question, none of them."""
    question = QUESTIONS[asked(prompt)]
    texts = {passage.text for passage in question.passages or [] if passage.id in (question.supporting or [])}
    shown = [line.removeprefix("Text: ") for line in prompt.split("Question: ")[-1].splitlines() if line.startswith("Text: ")]
    is_wrong = (1 + list(QUESTIONS).index(question.text)) % wrong_every == 0
    return json.dumps({"relevant": [] if is_wrong else [number for number, text in enumerate(shown, 1) if text in texts]})


def test_a_teachers_mistakes_are_measured_beside_what_its_labels_cost(labeled, evaluated):
    priced = {"model": "demo-teacher", "price": {"prompt": 2.0, "completion": 8.0}}
    runs = []
    for name, wrong_every in (("good", 10**9), ("careless", 2)):
        with serving(lambda prompt, every=wrong_every: relevance_reply(prompt, wrong_every=every)) as server:
            runs.append(labeled(name, "relevance", teacher=priced | {"base_url": server.base_url}))
    lines, _ = evaluated(*runs, "--against", *AGAINST)
    good, careless = [line for line in lines if line["against"] == "supporting passages"]
    assert means(good, "precision", "recall", "accuracy") == [1.0, 1.0, 1.0]
    assert means(careless, "precision") == [1.0]
    assert 0.3 < means(careless, "recall")[0] < 0.7
    assert float(careless["recall low"]) < means(careless, "recall")[0] < float(careless["recall high"])
    assert float(good["dollars_per_row"]) > 0
    assert float(careless["dollars_per_correct"]) > float(good["dollars_per_correct"])


def test_tokens_of_stored_replies_count(labeled, evaluated, tmp_path):
    with serving(lambda prompt: relevance_reply(prompt, wrong_every=3)) as server:
        shared = {"teacher": {"base_url": server.base_url, "model": "demo-teacher"}, "store": str(tmp_path / "store.sqlite")}
        runs = [labeled(name, "relevance", **shared) for name in ("first", "replayed")]
    lines, _ = evaluated(*runs)
    assert len({line["tokens_per_row"] for line in lines}) == 1


def test_self_knowledge_of_a_teacher_needs_its_closed_book_answers(labeled, evaluated):
    knows = {text for number, text in enumerate(QUESTIONS) if number % 3 == 0}

    def reply(prompt: str) -> str:
        if "Question: " in prompt and prompt.rstrip().endswith("Answer:"):
            return QUESTIONS[asked(prompt)].answers[0] if asked(prompt) in knows else "Nobody"
        return json.dumps({"answer": "yes"})

    with serving(reply) as server:
        endpoint = {"base_url": server.base_url, "model": "demo-teacher"}
        said = labeled("said", "self_knowledge", options={"by": "teacher"}, teacher=endpoint)
        shown = labeled("shown", "self_knowledge", options={"by": "student"}, target_endpoint=endpoint)
    assert "Name a run of the same model with `by: student`" in evaluated(said)[1]
    lines, error = evaluated(said, shown, "--closed-book", shown)
    assert error == ""
    share = len(knows) / len(QUESTIONS)
    assert means(lines[0], "precision", "recall", "accuracy") == pytest.approx([share, 1.0, share], abs=0.01)
    assert means(lines[1], "precision", "recall", "AUC") == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("against", "said"),
    [
        (AGAINST[:1], "of its 65 questions are not in the annotated rows, such as '"),
        (None, "none of its 16 questions is annotated for task 'decomposition'. Name rows that are."),
    ],
)
def test_rows_that_are_not_annotated_are_refused_in_one_line(labeled, evaluated, against, said):
    files = FILES if against else FILES[:1]  # HotpotQA annotates no sub-questions
    options = {"by": "annotations"} if against else {"by": "teacher"}
    with serving(lambda prompt: '{"sub_questions": ["Who is A?", "Who is B?"]}') as server:
        run = labeled(
            "run", "decomposition", options=options, questions=list(map(str, files)), teacher={"base_url": server.base_url, "model": "m"}
        )
    lines, error = evaluated(run, *(["--against", *against] if against else []))
    assert lines == []
    assert error.startswith(f"error: {run}: ")
    assert error.count("\n") == 1
    assert said in error


def test_a_question_with_another_text_is_refused(labeled, evaluated, tmp_path):
    run = labeled("run", "relevance", options={"by": "annotations"}, questions=[str(FILES[2])])
    rows = [json.loads(line) | {"question": "Another?"} for line in FILES[2].read_text().splitlines()]
    (tmp_path / "musique.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "has another text in the annotated rows." in evaluated(run, "--against", f"musique={tmp_path / 'musique.jsonl'}")[1]


def test_the_table_names_what_differs_between_runs(labeled, capsys):
    runs = [labeled(f"k{k}", "relevance", options={"by": "annotations"}, passages_per_query=k) for k in (2, 3)]
    assert main(["evaluate-labels", *map(str, runs), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| k2 | annotations | by=annotations passages_per_query=2 | passages that suffice |" in printed
    assert "A rejected question counts as missed in recall" in printed


def test_the_table_names_nothing_of_how_an_endpoint_is_reached(labeled, capsys):
    """Annotations have no endpoint, so that its keys do not differ from theirs; those of two teachers do if they change a label."""
    with serving(lambda prompt: '{"relevant": [1]}') as server:
        teachers = [{"base_url": server.base_url, "model": "m", "max_tokens": tokens, "timeout_seconds": tokens} for tokens in (50, 60)]
        runs = [labeled(f"t{number}", "relevance", teacher=teacher) for number, teacher in enumerate(teachers)]
    runs.append(labeled("a", "relevance", options={"by": "annotations"}))
    assert main(["evaluate-labels", *map(str, runs), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| a | annotations | by=annotations | passages that suffice |" in printed
    assert "| t0 | m | teacher.max_tokens=50 | passages that suffice |" in printed


def test_the_table_names_the_further_models_that_a_run_asks(labeled, capsys):
    with serving(lambda prompt: '{"relevant": [1]}') as server:
        teacher, strong = ({"base_url": server.base_url, "model": name} for name in ("m", "strong"))
        runs = [labeled("alone", "relevance", teacher=teacher), labeled("both", "relevance", teacher=teacher, fallbacks=[strong])]
    assert main(["evaluate-labels", *map(str, runs), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| alone | m |  | passages that suffice |" in printed
    assert "| both | m | fallbacks.0.model=strong | passages that suffice |" in printed


def test_a_breakdown_has_a_line_for_each_group_that_is_annotated(labeled, evaluated):
    """HotpotQA annotates no sub-questions, so it has no line; `refinery compare --breakdown` has the same groups."""
    lines, _ = evaluated(labeled("run", "decomposition", options={"by": "annotations"}), "--against", *AGAINST, "--breakdown")
    asked = [question for question in QUESTIONS.values() if question.decomposition]
    groups = Counter(group for question in asked for group in ("all", *groups_of(question, several_datasets=True)))
    assert {line["group"]: int(line["questions"]) for line in lines} == groups
    assert {"all", "two_wiki", "musique", "strategyqa", "multi_hop"} < set(groups)
    assert [line["group"] for line in lines][:2] == ["all", "two_wiki"]


def test_a_datasets_line_is_what_the_dataset_alone_gives(labeled, evaluated):
    options = {"kind": "multi_hop", "by": "annotations"}
    together, _ = evaluated(labeled("together", "refinement", options=options), "--breakdown")
    (alone,), _ = evaluated(labeled("alone", "refinement", options=options, questions=[str(FILES[2])]))
    (line,) = [line for line in together if line["group"] == "musique"]
    same = ("questions", "rejected", *(name for name in line if name.endswith((" mean", " low", " high"))))
    assert {name: line[name] for name in same} == {name: alone[name] for name in same}


def test_the_runs_of_a_group_are_beside_each_other_and_only_whole_runs_have_costs(labeled, capsys):
    priced = {"model": "demo-teacher", "price": {"prompt": 2.0, "completion": 8.0}}
    with serving(lambda prompt: relevance_reply(prompt, wrong_every=2)) as server:
        runs = [labeled("teacher", "relevance", teacher=priced | {"base_url": server.base_url})]
    runs.append(labeled("gold", "relevance", options={"by": "annotations"}))
    assert main(["evaluate-labels", *map(str, runs), "--breakdown", "--format", "markdown"]) == 0
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    header, *cells = lines
    rows = [dict(zip(header, row, strict=True)) for row in cells if row[0] in ("teacher", "gold")]
    assert [(row["group"], row["run"]) for row in rows if row["against"] == "supporting passages"][:4] == [
        (group, run) for group in ("all", "hotpotqa") for run in ("teacher", "gold")
    ]
    costs = [(row["group"] == "all", row["tokens a row"] != "-") for row in rows if row["run"] == "teacher"]
    assert {has_cost for is_whole, has_cost in costs if is_whole} == {True}
    assert {has_cost for is_whole, has_cost in costs if not is_whole} == {False}


def test_what_one_question_decides_has_no_interval(labeled, evaluated, capsys):
    run = labeled("run", "decomposition", options={"by": "annotations"}, questions=[str(FILES[1])], limit=1)
    (line,), _ = evaluated(run)
    assert (line["questions"], line["F1 mean"], line["F1 low"], line["F1 high"]) == ("1", "1", "", "")
    assert main(["evaluate-labels", str(run), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert "| 100.0 (1 question) |" in printed
    assert "What a single question decides has no interval." in printed


def test_precision_that_rests_on_the_only_labeled_question_has_no_interval(labeled, evaluated):
    only = next(iter(QUESTIONS.values())).text

    def reply(prompt: str) -> str:
        return relevance_reply(prompt, wrong_every=10**9) if asked(prompt) == only else "I'm sorry, I can't help with that."

    with serving(reply) as server:
        run = labeled("run", "relevance", teacher={"base_url": server.base_url, "model": "m"}, questions=[str(FILES[0])])
    line = next(line for line in evaluated(run)[0] if line["against"] == "supporting passages")
    assert (line["precision mean"], line["precision low"]) == ("1", "")
    assert float(line["recall low"]) <= float(line["recall mean"]) < float(line["recall high"])


def test_json_has_an_object_for_each_line_with_null_where_there_is_no_number(labeled, capsys):
    run = labeled("run", "decomposition", options={"by": "annotations"}, questions=[str(FILES[1])], limit=1)
    capsys.readouterr()
    assert main(["evaluate-labels", str(run), "--format", "json", "--breakdown"]) == 0
    whole, *groups = json.loads(capsys.readouterr().out)
    assert (whole["run"], whole["task"], whole["group"], whole["questions"]) == (str(run), "decomposition", "all", 1)
    assert whole["measures"]["F1"] == {"mean": 1.0, "low": None, "high": None}
    assert (whole["cost"]["tokens_per_row"], {one["cost"]["tokens_per_row"] for one in groups}) == (0, {None})


def test_rows_that_are_not_questions_are_in_no_group(labeled, evaluated, tmp_path):
    write_records(tmp_path / "passages.jsonl", [Passage(id="dune.md:1", title="Dune", text="Dune was made by Maria Torvel.")])

    def reply(prompt: str) -> str:
        wants_questions = "Questions wanted" in prompt
        return json.dumps({"questions": [{"question": "Who made Dune?", "answer": "Maria Torvel"}]} if wants_questions else {"answer": ""})

    with serving(reply) as server:
        corpus = {"retriever": {"passages": str(tmp_path / "passages.jsonl")}, "questions": [], "reader": "jsonl"}
        run = labeled("run", "questions", teacher={"base_url": server.base_url, "model": "m"}, **corpus)
    assert [line["group"] for line in evaluated(run, "--breakdown")[0]] == ["all"]


def test_python_gives_the_same_numbers(labeled):
    (found,) = evaluate_labels([labeled("run", "decomposition", options={"by": "annotations"})], list(QUESTIONS.values()))
    assert found.measures["precision"].mean == 1.0
    assert found.questions == sum(bool(question.decomposition) for question in QUESTIONS.values())
