"""Mistakes on the command line: commands, runs, outputs, ports and hub names."""

from helpers.bad_inputs.world import BadInput

COMMANDS = [
    BadInput("a misspelled command", "distil distill.yaml", ("no command 'distil'. Did you mean 'distill'?",)),
    BadInput("a misspelled option", "infer infer.yaml --resum", ("unrecognized arguments: --resum", "Did you mean '--resume'?")),
    BadInput(
        "a misspelled option of a command",
        "index passages.jsonl --output i --retreiver bm25.yaml",
        ("--retreiver", "Did you mean '--retriever'?"),
    ),
    BadInput("a choice of a command that does not exist", "rescore answered --selection best", ("--selection", "'best'", "ppl")),
    BadInput("a misspelled choice", "compare answered --format makrdown", ("--format", "'makrdown'", "Did you mean 'markdown'?")),
    BadInput("no recipe", "train", ("the following arguments are required: RECIPE",)),
    BadInput("text for a number", "view answered --limit many", ("--limit", "'many'")),
    BadInput("no such run", "view absent", ("absent: has no run.json. Name the output_dir of a run",)),
    BadInput(
        "a run that is not finished",
        "view half",
        ("half: is unfinished. Resume it with --resume",),
        {"half/run.json": '{"stage": "infer", "recipe": {}}'},
    ),
    BadInput("a damaged run", "view torn", ("torn/run.json: not valid JSON",), {"torn/run.json": "{"}),
    BadInput(
        "runs of two stages",
        "plot answered trained --output x.png",
        ("answered is an infer run, trained is a train run. Name runs of one stage",),
    ),
    BadInput("a train run to compare", "compare trained", ("trained", "infer")),
    BadInput("a model to answer with", "answer Who? --run absent", ("absent: there is no such run, recipe or checkpoint",)),
    BadInput(
        "an output that exists", "infer infer.yaml output_dir=answered", ("answered: already contains a run. Pass --resume to continue it",)
    ),
    BadInput(
        "an output that is a file",
        "infer infer.yaml output_dir=labels.jsonl",
        ("labels.jsonl: cannot be used as a run directory", "Choose another output_dir"),
    ),
    BadInput(
        "an output that cannot be written",
        "infer infer.yaml output_dir=labels.jsonl/run",
        ("labels.jsonl/run: cannot be used as a run directory", "Choose another output_dir"),
    ),
    BadInput(
        "an index over something else", "index passages.jsonl --output answered", ("answered: is not empty. Choose another --output",)
    ),
    BadInput(
        "an index in a place that cannot be written",
        "index passages.jsonl --output labels.jsonl/i",
        ("labels.jsonl", "(Not a directory). Choose another --output"),
    ),
    BadInput(
        "a port in use",
        "serve infer.yaml --port {port}",
        ("127.0.0.1:{port}: cannot bind to this address", "Choose another --port"),
        answer=lambda body: (200, {}),
    ),
    BadInput(
        "a retriever's port in use",
        "serve-retriever bm25.yaml --port {port}",
        ("127.0.0.1:{port}: cannot bind to this address", "Choose another --port"),
        {"bm25.yaml": "name: bm25\npassages: passages.jsonl\n"},
        answer=lambda body: (200, {}),
    ),
    BadInput(
        "a server for everyone without a key",
        "serve infer.yaml --host 0.0.0.0",
        ("--host 0.0.0.0: others can reach this address", "--api-key-env"),
    ),
    BadInput("a hub name without an owner", "push trained --to onlyname --dry-run", ("--to 'onlyname': is not of the form OWNER/NAME",)),
    BadInput("a hub name with a space", "push trained --to 'a b/c' --dry-run", ("--to 'a b/c': is not of the form OWNER/NAME",)),
    BadInput(
        "a push of answers",
        "push answered --to me/mine --dry-run",
        ("answered: is not a train or distill run, so there is nothing to push",),
    ),
    BadInput(
        "a push while offline",
        "push labeled --to me/mine",
        ("me/mine: the hub cannot be reached", "HF_HUB_OFFLINE"),
        {"labeled/run.json": '{"stage": "distill", "recipe": {}}', "labeled/metrics.json": "{}"},
    ),
    BadInput(
        "an accelerate file that does not exist",
        "train train.yaml --dry-run --config_file zero9",
        ("zero9: there is no such accelerate file", "zero2"),
    ),
    BadInput(
        "a checkpoint to merge without an adapter", "merge base --output merged", ("base: holds no adapter, so there is nothing to merge",)
    ),
    BadInput("a judge without a model", "judge answered base_url=http://127.0.0.1:1", ("judge: model: is missing",)),
]
