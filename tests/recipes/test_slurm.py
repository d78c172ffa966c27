"""The SLURM scripts, with doubles of SLURM's commands: what they submit, what its tasks start, and that these commands are right."""

import os
import subprocess
from pathlib import Path

import pytest

from refinery.cli import main
from refinery.contract.records import Trajectory, write_records
from refinery.runtime.recipes.shipped_files import DEMO_CHECKPOINT

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for path in (ROOT / "recipes/slurm").iterdir() if path.suffix in (".sh", ".slurm"))
RECORD = """#!/bin/bash
{ printf '%s\\x1f' "${0##*/}" "$@"; echo; } >> commands
"""
# Runs the script at once, as the first task of an array, and prints the job's number.
SBATCH = """#!/bin/bash
{ printf '%s\\x1f' sbatch "$@"; echo; } >> commands
wrapped=
while [[ $1 == --* ]]; do
    [[ $1 == --wrap ]] && wrapped=$2 && shift
    shift
done
export SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=1 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURM_NNODES=1 SLURM_NODEID=0
bash -c "${wrapped:-\\"\\$@\\"}" task bash "$@" >&2
wc -l < commands
"""
SRUN = '#!/bin/bash\nshift\nexec "$@"\n'


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_valid_shell(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False).returncode == 0


def test_training_is_requeued_and_resumed() -> None:
    text = (ROOT / "recipes/slurm/train.slurm").read_text()
    assert "#SBATCH --requeue" in text
    assert "--resume" in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `rq_rag.sh` was run: recipes, rows in the places of the downloads, and the commands that were started."""
    folder = tmp_path_factory.mktemp("cluster")
    for name, target in {"recipes": "recipes", "accelerate_configs": "accelerate_configs", "data": "recipes/stand_in/data"}.items():
        (folder / name).symlink_to(ROOT / target)
    (folder / "bin").mkdir()
    for name, text in {
        "sbatch": SBATCH,
        "srun": SRUN,
        "scontrol": "#!/bin/bash\necho n1\n",
        "refinery": RECORD,
        "accelerate": RECORD,
    }.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    script = (folder / "recipes/slurm/rq_rag.sh").read_text().replace('cd "$(dirname "$0")/../.."', "")  # the links lead to the checkout
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def started(folder: Path) -> list[list[str]]:
    return [line.split("\x1f")[:-1] for line in (folder / "commands").read_text().splitlines()]


def test_each_job_waits_for_the_one_before_it(folder: Path) -> None:
    jobs = [command for command in started(folder) if command[0] == "sbatch"]
    waits = [next((word for word in command if word.startswith("--dependency")), "") for command in jobs]

    assert waits == ["", *(f"--dependency=afterok:{2 * number}" for number in range(1, 5))]


def test_labels_and_answers_are_divided_and_merged_and_training_has_eight_gpus(folder: Path) -> None:
    words = [" ".join(command) for command in started(folder) if command[0] != "sbatch"]

    assert [each for each in words if "merge" in each] == [
        "refinery distill merge runs/slurm/labels runs/slurm/labels.shards/*",
        "refinery infer merge runs/slurm/answers runs/slurm/answers.shards/*",
    ]
    assert sum("shard=0/1" in each and ".shards/0 " in each and each.endswith("--resume") for each in words) == 2
    assert "accelerate launch --config_file accelerate_configs/zero3.yaml --num_machines 1 --num_processes 8 " in words[2]


@pytest.mark.parametrize(
    ("stage", "instead"),
    [
        ("distill", ["sample=null"]),
        ("train", [f"base={DEMO_CHECKPOINT}"]),
        ("infer", [f"llm.base={DEMO_CHECKPOINT}", "llm.dtype=float32", "retriever.options={scoring: okapi}"]),
    ],
)
def test_the_commands_of_the_tasks_are_accepted(
    stage: str, instead: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a base and a searcher that are at hand."""
    monkeypatch.chdir(folder)
    (folder / "runs/slurm/labels").mkdir(parents=True, exist_ok=True)
    labeled = Trajectory(question_id="q", question="Where is Lyon?", steps=[{"action": "answer", "text": "France"}])
    write_records(folder / "runs/slurm/labels/train.jsonl", [labeled])
    command = next(command for command in started(folder) if command[0] != "sbatch" and stage in command and "merge" not in command)
    words = [word for word in command[command.index(stage) :] if word != "--resume"]

    assert main([*words, *instead, "--dry-run"]) == 0, capfd.readouterr().err
