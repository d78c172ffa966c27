"""One file per command: `GROUP` and `HELP` (in `refinery --help`), `add_arguments(parser)` and `run(arguments)`.

Each command imports the code that it needs only when it runs. A command that costs something may also have `forecast(words, expected)`,
which says for the plan of `refinery run` what it will take (`refinery.runtime.forecast`). One that shards can do has `divided(words)`,
which says for `refinery run --on ray` where it is done (`refinery.project.ray_runner`).
"""

import importlib
from pkgutil import iter_modules
from types import ModuleType

from refinery.runtime.recipes.stages import stages


def commands() -> dict[str, str]:
    """The module of every command by its name: those of this package and of each stage."""
    packages = [
        (__name__, __path__),
        *((package.__name__, package.__path__) for stage in stages().values() if (package := stage.commands())),
    ]
    found = ((module.name.replace("_", "-"), f"{name}.{module.name}") for name, path in packages for module in iter_modules(path))
    return dict(sorted(found))


def command_of(name: str) -> ModuleType | None:
    """The module of a command, or None if there is no such command."""
    return importlib.import_module(commands()[name]) if name in commands() else None
