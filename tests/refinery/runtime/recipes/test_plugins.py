import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from refinery.errors import PluginError, RecipeError
from refinery.retrievers import bm25
from refinery.retrievers.base import RETRIEVERS
from refinery.runtime.recipes import plugins


@dataclass(frozen=True)
class Gauge:
    read: Callable[[str], Any]
    unit: str = "K"


GAUGES = plugins.PluginKind("gauge", "refinery.gauges", Gauge, "GAUGE", "read", ("text",), Gauge, table={"em.squad": Gauge(len)})


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Writes a module of somebody's own into the working directory; returns its path."""

    def write(text, name="my_lab_gauge"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)
        return tmp_path / f"{name}.py"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield write
    for name in [name for name in sys.modules if name.startswith("my_lab_gauge")]:
        del sys.modules[name]


def test_a_part_is_the_file_of_its_name():
    assert plugins.find(RETRIEVERS, "bm25") is bm25.RETRIEVER


def test_what_plugins_share_is_not_a_plugin():
    assert "bm25" in RETRIEVERS.shipped()
    assert "base" not in RETRIEVERS.shipped()


def test_a_misspelt_name_gets_the_nearest_one():
    with pytest.raises(PluginError, match=r"no retriever 'bm52'. Did you mean 'bm25'\? Available: bm25, candidates"):
        plugins.find(RETRIEVERS, "bm52")


def test_an_unlike_name_gets_the_list():
    with pytest.raises(PluginError, match=r"no retriever 'zzz'. Available: bm25, candidates"):
        plugins.find(RETRIEVERS, "zzz")


def test_a_part_that_ships_is_found_by_its_name():
    assert plugins.find(GAUGES, "em.squad").unit == "K"


@pytest.mark.parametrize("name", ["my_lab_gauge:GAUGE", "my_lab_gauge:read"])
def test_an_object_and_a_function_outside_are_found(lab, monkeypatch, name):
    lab("from test_gauges import Gauge\ndef read(text): return len(text)\nGAUGE = Gauge(read)\n")
    monkeypatch.setitem(sys.modules, "test_gauges", sys.modules[__name__])
    assert plugins.find(GAUGES, name).read("four") == 4


def test_a_dotted_module_gives_what_it_declares(lab, tmp_path):
    (tmp_path / "my_lab_gauges").mkdir()
    (tmp_path / "my_lab_gauges" / "heat.py").write_text("def read(text): return text.upper()\n")
    assert plugins.find(GAUGES, "my_lab_gauges.heat").read("hot") == "HOT"


def test_a_function_with_other_parameters_is_told_how_it_is_called(lab):
    lab("def read(): return 1\n")
    with pytest.raises(PluginError, match=r"gauge 'my_lab_gauge:read': cannot be called as read\(text\) \(too many positional arguments\)"):
        plugins.find(GAUGES, "my_lab_gauge:read")


def test_a_module_that_declares_nothing_is_told_what_is_missing(lab, tmp_path):
    (tmp_path / "my_lab_gauges").mkdir()
    (tmp_path / "my_lab_gauges" / "cold.py").write_text("")
    with pytest.raises(PluginError, match=r"cold.py declares neither GAUGE \(a Gauge\) nor the function read\(text\)"):
        plugins.find(GAUGES, "my_lab_gauges.cold")


def test_an_object_of_another_type_is_named(lab):
    lab("GAUGE = {}\n")
    with pytest.raises(PluginError, match=r"is a dict. It should be a Gauge, or a function read\(text\)"):
        plugins.find(GAUGES, "my_lab_gauge:GAUGE")


def test_a_misspelt_attribute_gets_the_nearest_one(lab):
    place = lab("def read(text): return 1\n")
    with pytest.raises(PluginError, match=rf"{place} has no 'raed'. Did you mean 'read'\?"):
        plugins.find(GAUGES, "my_lab_gauge:raed")


def test_a_module_that_is_missing_is_named():
    with pytest.raises(PluginError, match="no gauge 'no_such_lab.heat'. .* There is no module 'no_such_lab', neither in .* nor installed"):
        plugins.find(GAUGES, "no_such_lab.heat")


def test_a_misspelt_name_with_a_dot_gets_the_nearest_one():
    with pytest.raises(PluginError, match=r"no gauge 'em.sqaud'. Did you mean 'em.squad'\? Available: em.squad. There is no module 'em'"):
        plugins.find(GAUGES, "em.sqaud")


@pytest.mark.parametrize("fault", ["import no_such_package", "1 / 0", "from json import nothing"])
def test_a_fault_inside_the_module_is_told_with_its_line(lab, fault):
    place = lab(f"import json\n{fault}\n")
    with pytest.raises(PluginError, match=rf"its module cannot be imported \(\w+ at {place}:2: "):
        plugins.find(GAUGES, "my_lab_gauge:read")


@pytest.mark.parametrize("name", [":read", "json:"])
def test_half_a_name_is_told_its_form(name):
    with pytest.raises(PluginError, match="is neither a module name nor module:attribute"):
        plugins.find(GAUGES, name)


def test_an_entry_point_is_found_by_its_name(lab, tmp_path, monkeypatch):
    lab("def read(text): return text[::-1]\n")
    (tmp_path / "my_lab-1.dist-info").mkdir()
    (tmp_path / "my_lab-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my_lab\nVersion: 1\n")
    (tmp_path / "my_lab-1.dist-info" / "entry_points.txt").write_text("[refinery.gauges]\nmirror = my_lab_gauge:read\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.find_installed(GAUGES, "mirror").read("abc") == "cba"
    assert GAUGES.names() == ["em.squad", "mirror"]


def test_a_name_that_a_file_says_reaches_no_module_outside(lab):
    place = lab("open('was_run', 'w').close()\n")
    with pytest.raises(PluginError, match="gauge 'my_lab_gauge:read' is not installed.* Name it in a recipe"):
        plugins.find_installed(GAUGES, "my_lab_gauge:read")
    assert not (place.parent / "was_run").exists()


def test_a_wrong_part_is_a_fault_of_the_recipe():
    assert issubclass(PluginError, RecipeError)


def test_an_object_that_python_code_has_at_hand_is_found_by_its_name(lab, tmp_path):
    lab("GAUGE = None\ndef read(text): return len(text)\n")
    sys.path.append(str(tmp_path))
    module = import_module("my_lab_gauge")
    module.GAUGE = Gauge(module.read)
    assert [plugins.name_of(each) for each in (module.read, module.GAUGE)] == ["my_lab_gauge:read", "my_lab_gauge:GAUGE"]
    assert plugins.find(GAUGES, "my_lab_gauge:GAUGE") is module.GAUGE


def test_two_functions_of_one_name_are_told_apart():
    def made(length):
        def read(text):
            return length

        return read

    first, second = made(1), made(2)
    names = [plugins.name_of(each) for each in (first, second, first)]
    assert names[0] == names[2] != names[1]
    assert [plugins.find(GAUGES, name).read("") for name in names] == [1, 2, 1]


@pytest.mark.parametrize("given", [5, None, object()])
def test_what_is_no_plugin_has_no_name(given):
    with pytest.raises(PluginError, match="and not a plugin's declaration, function or class"):
        plugins.name_of(given)
