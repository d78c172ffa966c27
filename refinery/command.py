"""The `refinery` command: every stage, the demo, and looking at runs. It imports a stage only when that stage is asked for."""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from refinery import __version__
from refinery.stage import configure_logging, guarded

_STAGES = {
    "distill": "label questions with a teacher",
    "train": "fine-tune a model on the labels",
    "infer": "answer questions with a decoder and score the answers",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _STAGES:
        # The stages stand beside this package and are never imported by it; a name reaches them.
        return int(importlib.import_module(f"{arguments[0]}.__main__").main(arguments[1:]))
    parsed = _parser().parse_args(arguments)
    configure_logging()
    return guarded(lambda: parsed.action(parsed), traceback=parsed.traceback)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="refinery", description="Distil, train and decode self-feedback RAG.")
    parser.add_argument("--version", action="version", version=f"refinery {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in _STAGES.items():
        commands.add_parser(name, help=f"{text}: refinery {name} RECIPE [key=value ...] [--dry-run] [--resume]")
    answer = commands.add_parser("answer", help="answer one question and print its trace")
    answer.add_argument("question")
    answer.add_argument("--run", type=Path, required=True, help="output_dir of an infer run, or of the demo")
    answer.add_argument("--decoder", default="ra_isf", help="which of the demo's decoders answers (default: ra_isf)")
    answer.set_defaults(action=_answer)
    view = commands.add_parser("view", help="print a run's results and the traces of its questions")
    view.add_argument("run", type=Path, metavar="RUN", help="output_dir of a run")
    view.add_argument("--question", metavar="ID", help="the one question to show")
    view.add_argument("--limit", type=int, default=3, help="questions to show (default: 3)")
    view.set_defaults(action=_view)
    compare = commands.add_parser("compare", help="one table of several infer runs, with paired bootstrap intervals")
    compare.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="output_dir of infer runs; a demo's stands for all of its own")
    compare.add_argument("--baseline", metavar="NAME", help="the system that the others are compared with")
    compare.add_argument("--metric", action="append", default=[], metavar="NAME", help="show this metric (may be repeated)")
    compare.add_argument("--breakdown", action="store_true", help="by question type as well")
    compare.add_argument("--force", action="store_true", help="compare runs over different questions or corpora")
    compare.add_argument("--format", default="terminal", choices=["terminal", "markdown", "csv", "latex"])
    compare.set_defaults(action=_compare)
    rescore = commands.add_parser("rescore", help="select and score a run's stored trees again, without a model")
    rescore.add_argument("run", type=Path, metavar="RUN", help="output_dir of an infer run")
    rescore.add_argument("--selection", choices=["ppl", "confidence", "ensemble"], help="how one path is chosen")
    rescore.add_argument("--fidelity", choices=["paper", "fixed"], help="how confidence and the ensemble are defined")
    rescore.set_defaults(action=_rescore)
    push = commands.add_parser("push", help="push a finished train or distill run to a hub")
    push.add_argument("run", type=Path, metavar="RUN", help="output_dir of the run")
    push.add_argument("repository", metavar="OWNER/NAME")
    push.add_argument("--private", action="store_true")
    push.add_argument("--dry-run", action="store_true", help="print the card and stop")
    push.set_defaults(action=_push)
    demo = commands.add_parser("demo", help="the whole loop on the embedded world, offline on CPU")
    demo.add_argument("--seed", type=int, default=0, help="draws new rare entities, questions, splits and training order")
    demo.add_argument("--output", type=Path, default=Path("runs/demo"), help="where it goes (default: runs/demo)")
    demo.add_argument("--resume", action="store_true", help="go on with what is there")
    demo.set_defaults(action=_demo)
    bench = commands.add_parser("bench", help="measure a stage beside a mock endpoint")
    bench.add_argument("stage", choices=["distill"])
    bench.add_argument("--json", action="store_true", help="print JSON and nothing else")
    bench.set_defaults(action=_bench)
    for command in (answer, view, compare, rescore, push, demo, bench):
        command.add_argument("--traceback", action="store_true", help="show where an error came from")
    return parser


def _answer(arguments: argparse.Namespace) -> None:
    importlib.import_module("infer.answer").print_answer(arguments.question, arguments.run, decoder=arguments.decoder)


def _view(arguments: argparse.Namespace) -> None:
    importlib.import_module("infer.view").print_run(arguments.run, question=arguments.question, limit=arguments.limit)


def _compare(arguments: argparse.Namespace) -> None:
    importlib.import_module("infer.compare").print_comparison(
        arguments.runs,
        baseline=arguments.baseline,
        metrics=arguments.metric,
        breakdown=arguments.breakdown,
        force=arguments.force,
        table_format=arguments.format,
    )


def _rescore(arguments: argparse.Namespace) -> None:
    metrics = importlib.import_module("infer.rescore").rescore(arguments.run, selection=arguments.selection, fidelity=arguments.fidelity)
    from rich.console import Console

    table = importlib.import_module("infer.report").results_table(metrics["results"], title=f"{arguments.run}, scored again")
    Console(width=170).print(table)


def _push(arguments: argparse.Namespace) -> None:
    from refinery.hub import card, push

    if arguments.dry_run:
        print(card(arguments.run))
    else:
        print(push(arguments.run, arguments.repository, private=arguments.private))


def _bench(arguments: argparse.Namespace) -> None:
    figures = importlib.import_module(f"{arguments.stage}.benchmark.run").measure()
    print(json.dumps(figures, indent=None if arguments.json else 2))


def _demo(arguments: argparse.Namespace) -> None:
    from refinery.demo.run import run_demo

    run_demo(arguments.seed, arguments.output, resume=arguments.resume)


if __name__ == "__main__":
    sys.exit(main())
