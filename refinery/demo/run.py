"""The whole loop on the embedded world: teacher, labels, checkpoints, answers, table. Each stage runs as a user would run it."""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from refinery.contract.records import Question, read_records
from refinery.demo.jobs import SUB_MODELS, Job, core_jobs, method_jobs
from refinery.demo.methods import report_methods
from refinery.demo.world.data import common_share, write_demo_data
from refinery.errors import RunDirError
from refinery.runtime.run_dir import environment, read_metrics, write_json
from refinery.runtime.shipped import shipped
from refinery.runtime.together import together

# Each job is one CPU thread: a second thread makes a model this small slower, a second job does not. The last one has both cores.
_JOBS_AT_ONCE = 2
_THREADS = {"infer/rq_rag": 2}
Methods = Literal["core", "all"]


def run_demo(seed: int, output: Path, *, methods: Methods, resume: bool) -> None:
    """Run everything and write `metrics.json`, and with all methods `methods.json`.

    Raises RunDirError when `output` is in use or a stage fails.
    """
    if (output / "run.json").exists() and not resume:
        raise RunDirError(f"{output}: already contains a demo. Pass --resume to continue it, or --output to start another.")
    started = time.perf_counter()
    paths = write_demo_data(seed, output / "data")
    port = _teacher_port(output)
    write_json(output / "run.json", {"stage": "demo", "recipe": {"seed": seed, "teacher_port": port}, **environment()})
    jobs = core_jobs(seed, output, port) + (method_jobs(seed, output, port) if methods == "all" else [])
    seconds = asyncio.run(_run_all(jobs, seed, port, output, resume))
    questions = read_records(paths["test"], Question)
    metrics = _collect(output, questions)
    metrics |= {"seed": seed, "seconds": round(time.perf_counter() - started, 1), "seconds_per_job": seconds}
    write_json(output / "metrics.json", metrics)
    _print(metrics, output, example=next(q.text for q in questions if q.type == "two_hop"))
    if methods == "all":
        report_methods(output, [output / job.name for job in jobs if job.name.startswith("infer/")])


async def _run_all(jobs: list[Job], seed: int, port: int, output: Path, resume: bool) -> dict[str, float]:
    """Run the jobs, each as soon as what it needs is done, a few at once. Returns each job's seconds."""
    done = {job.name: asyncio.Event() for job in jobs}
    gate = asyncio.Semaphore(_JOBS_AT_ONCE)
    seconds: dict[str, float] = {}

    async def run(job: Job) -> None:
        for need in job.needs:
            await done[need].wait()
        async with gate:
            seconds[job.name] = await _run_job(job, output, resume)
        done[job.name].set()

    async with _teacher(seed, port, output):
        await together(run(job) for job in jobs)
    return seconds


async def _run_job(job: Job, output: Path, resume: bool) -> float:
    """One `python -m <stage> <recipe>`; its output goes to logs/. Raises RunDirError with its last line when it fails."""
    stage, name = job.name.split("/")
    command = [sys.executable, "-m", stage, str(shipped(f"recipes/demo/{job.recipe or job.name}.yaml")), *job.overrides]
    log = output / "logs" / f"{stage}_{name}.log"
    log.parent.mkdir(exist_ok=True)
    started = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        arguments = [*command, *(["--resume"] if resume else [])]
        process = await asyncio.create_subprocess_exec(*arguments, stdout=file, stderr=file, env=_environment(_THREADS.get(job.name, 1)))
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
    if code != 0:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise RunDirError(f"{job.name} failed ({last[0] if last else f'exit code {code}'}). The whole log is {log}.")
    elapsed = round(time.perf_counter() - started, 1)
    print(f"{job.name}: {elapsed:.0f} s", file=sys.stderr, flush=True)
    return elapsed


@asynccontextmanager
async def _teacher(seed: int, port: int, output: Path) -> AsyncIterator[None]:
    """The teacher's process, ready to answer."""
    command = [sys.executable, "-m", "refinery.demo.teacher.replies", "--seed", str(seed), "--port", str(port)]
    (output / "logs").mkdir(exist_ok=True)
    with (output / "logs" / "teacher.log").open("w", encoding="utf-8") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log, env=_environment(1))
    try:
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise RunDirError(f"the demo's teacher did not start; see {output}/logs/teacher.log.")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _environment(threads: int) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def _teacher_port(output: Path) -> int:
    """A free port. A resumed demo keeps its port, because replies are stored under the endpoint that gave them."""
    record = output / "run.json"
    if record.exists():
        return int(json.loads(record.read_text(encoding="utf-8"))["recipe"]["teacher_port"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _collect(output: Path, questions: list[Question]) -> dict[str, Any]:
    """The demo's metrics from those of its runs."""

    results: dict[str, Any] = {}
    for decoder in ("direct", "rag", "ra_isf_paper", "ra_isf", "rq_rag"):
        results |= read_metrics(output / "infer" / decoder)["results"]
    fields = ("accuracy", "f1", "validation_rows")
    return {
        "results": results,
        "questions": len(questions),
        "common_share": round(common_share(questions), 4),
        "sub_models": {task: {field: read_metrics(output / "models" / task)[field] for field in fields} for task in SUB_MODELS},
        "labels": {task: read_metrics(output / "labels" / task) for task in (*SUB_MODELS, "refinement")},
    }


def _print(metrics: dict[str, Any], output: Path, *, example: str) -> None:
    from rich.console import Console

    from refinery.reporting.results import results_table

    console = Console(width=170)
    console.print(results_table(metrics["results"], title=f"{metrics['questions']} held-out questions, seed {metrics['seed']}"))
    for task, scores in metrics["sub_models"].items():
        console.print(f"{task}: accuracy {scores['accuracy']:.3f}, F1 {scores['f1']:.3f} on {scores['validation_rows']} held-out labels")
    console.print(f"written to {output}/metrics.json. Look at one question: refinery answer '{example}' --run {output}")
