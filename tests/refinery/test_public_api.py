"""The facade: what `import refinery` offers, and what it costs."""

import inspect
import subprocess
import sys
from pkgutil import iter_modules

import pytest

import refinery

FUNCTIONS = [name for name in refinery.__all__ if inspect.isroutine(getattr(refinery, name))]


@pytest.mark.parametrize("name", refinery.__all__)
def test_every_name_is_there_and_documented(name):
    assert getattr(refinery, name) is not None
    assert name in dir(refinery)


def test_no_name_is_also_a_module():
    assert not {module.name for module in iter_modules(refinery.__path__)} & set(refinery.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_functions_docstring_shows_a_use_of_it(name):
    documented = inspect.getdoc(getattr(refinery, name)) or ""
    assert any(line.startswith("    ") and f"refinery.{name}(" in line for line in documented.splitlines())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_typed(name):
    signature = inspect.signature(getattr(refinery, name))
    annotations = [parameter.annotation for parameter in signature.parameters.values()] + [signature.return_annotation]
    assert inspect.Signature.empty not in annotations


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'refinery' has no attribute 'laod'"):
        _ = refinery.laod


def test_importing_it_imports_no_stage_and_no_library():
    script = "import sys; before = set(sys.modules); import refinery; print(*sorted(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    outside = {name.partition(".")[0] for name in found.stdout.split()} - sys.stdlib_module_names - {"refinery"}
    assert outside == set()
    assert [name for name in found.stdout.split() if name.startswith("refinery")] == ["refinery", "refinery.version"]
