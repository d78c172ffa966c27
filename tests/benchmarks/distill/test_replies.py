"""The table of what became of a teacher's replies."""

import json

from benchmarks.distill.replies import main


def test_a_run_is_a_line_with_its_rejections_and_readings(tmp_path, capsys):
    run = tmp_path / "decomposition"
    run.mkdir()
    teacher = {"calls": 5, "replies_from_store": 1, "replies_read_as": {"object": 2, "list_after_correction": 1}}
    counts = {"questions": 4, "questions_labelled": 3, "questions_without_rows": 0, "questions_rejected": 1}
    (run / "metrics.json").write_text(json.dumps(counts | {"rejected_by_reason": {"malformed": 1}, "teacher": teacher}))

    assert main([str(run), str(tmp_path / "unfinished")]) == 0
    assert "| decomposition | 4 | 3 | 1 | 1 malformed | 6 | 2 object, 1 list after correction |" in capsys.readouterr().out


def test_the_calls_of_several_teachers_are_counted_by_their_roles(tmp_path, capsys):
    run = tmp_path / "judged"
    run.mkdir()
    teacher = {"calls": 4, "replies_from_store": 0, "replies_read_as": {"object": 4}}
    judge = {"calls": 1, "replies_from_store": 1, "replies_read_as": {"object": 1, "words": 1}}
    counts = {"questions": 4, "questions_labelled": 4, "questions_without_rows": 0, "questions_rejected": 0}
    (run / "metrics.json").write_text(json.dumps(counts | {"rejected_by_reason": {}, "teacher": teacher, "judge": judge}))

    assert main([str(run)]) == 0
    assert "| judged | 4 | 4 | 0 |  | 4 teacher, 2 judge | 5 object, 1 words |" in capsys.readouterr().out
