"""Mistakes in a recipe, in its overrides and in the names of plugins."""

from helpers.bad_inputs.world import TRAIN, BadInput

RECIPES = [
    BadInput("no such recipe", "infer absent.yaml", ("absent.yaml: cannot be read (No such file or directory)", "`refinery recipes`")),
    BadInput("a recipe that is a folder", "infer answered", ("answered: cannot be read (Is a directory)",)),
    BadInput("an empty recipe", "train empty.yaml", ("empty.yaml: has no keys", "one `key: value` per line"), {"empty.yaml": ""}),
    BadInput("a recipe that is a list", "infer list.yaml", ("list.yaml: has no keys",), {"list.yaml": "- decoder: rag\n"}),
    BadInput("a recipe that is not YAML", "infer bad.yaml", ("bad.yaml:2: not valid YAML",), {"bad.yaml": "decoder: rag\n  name: [\n"}),
    BadInput("a tab in a recipe", "infer tab.yaml", ("tab.yaml:2: not valid YAML",), {"tab.yaml": "llm:\n\tbase: x\n"}),
    BadInput(
        "a recipe in Latin 1",
        "infer latin.yaml",
        ("latin.yaml: not UTF-8 at byte 5", "Save the file as UTF-8"),
        {"latin.yaml": b"# caf\xe9\xe9"[:6] + b"\n\n\xe9: 1\n"},
    ),
    BadInput(
        "a recipe in UTF-16",
        "infer wide.yaml",
        ("wide.yaml: is UTF-16", "Save the file as UTF-8"),
        {"wide.yaml": "decoder: rag\n".encode("utf-16")},
    ),
    BadInput(
        "a misspelled key", "train train.yaml learning_rat=1e-3", ("train.yaml: learning_rat: unknown key. Did you mean 'learning_rate'?",)
    ),
    BadInput(
        "another toolkit's key",
        "train train.yaml num_train_epochs=2",
        ("train.yaml: num_train_epochs: unknown key. It is called 'epochs' here",),
    ),
    BadInput("an unknown key", "infer infer.yaml banana=1", ("infer.yaml: banana: unknown key. Known: ", "passages_per_query")),
    BadInput(
        "a misspelled nested key",
        "distill distill.yaml teacher.modle=x",
        ("distill.yaml: teacher.modle: unknown key. Did you mean 'model'?",),
    ),
    BadInput(
        "a missing key", "train mine.yaml", ("mine.yaml: base: is missing",), {"mine.yaml": {k: v for k, v in TRAIN.items() if k != "base"}}
    ),
    BadInput("text where a number belongs", "train train.yaml epochs=many", ("train.yaml: epochs:", "valid number", "'many'")),
    BadInput(
        "a number out of range",
        "infer rag.yaml passages_per_query=0",
        ("rag.yaml: passages_per_query:", "greater than or equal to 1", "got 0"),
    ),
    BadInput("a list where a path belongs", "infer infer.yaml output_dir=[a,b]", ("infer.yaml: output_dir:", "['a', 'b']")),
    BadInput(
        "text where a list belongs", "infer infer.yaml questions=questions.jsonl", ("infer.yaml: questions:", "list", "[questions.jsonl]")
    ),
    BadInput("a choice that does not exist", "train train.yaml strategy=lorra", ("train.yaml: strategy:", "'lora'", "'lorra'")),
    BadInput("an override without a value", "infer infer.yaml decoder", ("override 'decoder' is not of the form key=value",)),
    BadInput(
        "an override below a value",
        "infer infer.yaml decoder.name=x",
        ("override 'decoder.name=x'", "'decoder' is a value, not a part with keys"),
    ),
    BadInput("an override that is not YAML", "infer infer.yaml limit=[", ("override 'limit=['", "not valid YAML")),
    BadInput(
        "a key in the recipe",
        "distill distill.yaml teacher.api_key_env=sk-abcdefghijklmnopqrstuvwxyz123456",
        ("distill.yaml: teacher.api_key_env", "variable"),
    ),
    BadInput(
        "an infer recipe given to train",
        "train infer.yaml",
        ("infer.yaml: is an infer recipe. Run it with: refinery infer infer.yaml",),
    ),
    BadInput(
        "a train recipe given to distill",
        "distill train.yaml",
        ("train.yaml: is a train recipe. Run it with: refinery train train.yaml",),
    ),
    BadInput(
        "a distill recipe given to infer",
        "infer distill.yaml",
        ("distill.yaml: is a distill recipe. Run it with: refinery distill distill.yaml",),
    ),
    BadInput(
        "an infer recipe given to report",
        "report infer.yaml",
        ("infer.yaml: is an infer recipe", "refinery infer infer.yaml"),
    ),
    BadInput(
        "an infer recipe given to index",
        "index passages.jsonl --output i --retriever rag.yaml",
        ("rag.yaml: is an infer recipe",),
    ),
    BadInput("a misspelled decoder", "infer rag.yaml decoder=rga", ("rag.yaml: decoder: no decoder 'rga'. Did you mean 'rag'?",)),
    BadInput(
        "a misspelled option of a decoder",
        "infer rag.yaml decoder=rq_rag options.max_dept=3",
        ("rag.yaml: options.max_dept: unknown key. Did you mean 'max_depth'?",),
    ),
    BadInput(
        "a decoder without its retriever",
        "infer infer.yaml decoder=rag",
        ("infer.yaml: retriever: is missing, and decoder 'rag' needs it",),
    ),
    BadInput("a misspelled task", "train train.yaml task=relevanse", ("train.yaml: task: no task 'relevanse'. Did you mean 'relevance'?",)),
    BadInput(
        "a module that does not exist",
        "infer rag.yaml retriever.name=my_lab.colbert",
        ("rag.yaml: retriever.name: no retriever 'my_lab.colbert'", "There is no module 'my_lab'"),
    ),
    BadInput(
        "a module without a plugin",
        "infer rag.yaml retriever.name=lonely.module",
        ("retriever 'lonely.module'", "declares neither RETRIEVER"),
        {"lonely/module.py": "x = 1\n"},
    ),
    BadInput(
        "a function that builds nothing",
        "infer rag.yaml retriever.name=hollow.module:build",
        ("rag.yaml: retriever.name: retriever 'hollow.module:build': an object has no corpus_hash, revision, search",),
        {"hollow/module.py": "def build(config, options):\n    return object()\n"},
    ),
    BadInput(
        "a function with other arguments",
        "infer rag.yaml retriever.name=narrow.module:build",
        ("retriever 'narrow.module:build': cannot be called as build(config, options)",),
        {"narrow/module.py": "def build():\n    return object()\n"},
    ),
    BadInput(
        "a module with an error",
        "infer rag.yaml retriever.name=broken.module",
        ("retriever 'broken.module': its module cannot be imported (ZeroDivisionError", "module.py:1"),
        {"broken/module.py": "1 / 0\n"},
    ),
    BadInput(
        "a metric that does not exist",
        "infer infer.yaml metrics=[em.sqad]",
        ("infer.yaml: metrics: ", "no metric 'em.sqad'. Did you mean 'em.squad'?"),
    ),
]
