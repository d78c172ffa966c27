"""Draw panels as one figure, PNG or SVG. Each stage's `plot.py` defines the panels of a run; this module defines their style.

matplotlib comes with the extra `plots` and is imported only when something is drawn.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinery.errors import RunDirError
from refinery.installed import install_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
# Okabe and Ito's colors, which color-blind readers can distinguish, without the yellow that is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "axes.edgecolor": "#8a929c",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": "#3c434b",
    "font.size": 9.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text, so that it can be searched and edited
    "svg.hashsalt": "refinery",  # equal figures are equal files
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes: its name, its title, and the function that draws it."""

    name: str
    title: str
    draw: "Callable[[Axes], None]"


def save_figure(panels: Sequence[Panel], output: Path, *, only: Sequence[str] = ()) -> list[str]:
    """Draw the panels, or `only` the named ones, side by side. Returns the names of the drawn panels.

    Raises RunDirError for a panel that these runs do not have, for a format other than PNG and SVG, and when matplotlib is missing.
    """
    if output.suffix not in FORMATS:
        raise RunDirError(f"{output}: ends in {output.suffix!r}. A figure is written as {' or '.join(FORMATS)}.")
    names = [panel.name for panel in panels]
    if missing := [name for name in only if name not in names]:
        raise RunDirError(f"these runs have no panel '{missing[0]}'. They have: {', '.join(names)}.")
    chosen = [panel for panel in panels if not only or panel.name in only]
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise RunDirError(f"plots need matplotlib. Install it: {install_extra('plots')}") from None
    with rc_context(_STYLE):
        columns = min(len(chosen), 2)
        rows = math.ceil(len(chosen) / columns)
        figure = Figure(figsize=(6.4 * columns, 4.2 * rows), layout="constrained")
        for number, panel in enumerate(chosen, 1):
            axes = figure.add_subplot(rows, columns, number)
            axes.set_title(_plain(panel.title))
            panel.draw(axes)
        try:
            figure.savefig(output, dpi=160, metadata={"Date": None} if output.suffix == ".svg" else None)
        except OSError as error:
            raise RunDirError(f"{output}: cannot be written ({error.strerror}). Choose another --output.") from None
    return [panel.name for panel in chosen]


def draw_bars(axes: "Axes", groups: dict[str, dict[str, tuple[float, float, float]]], *, label: str) -> None:
    """Bars by group and series, each (mean, low, high), with the mean written on it."""
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    width = 0.8 / len(series)
    for number, name in enumerate(series):
        places = [(place, values[name]) for place, values in enumerate(groups.values()) if name in values]
        centres = [place - 0.4 + width * (number + 0.5) for place, _ in places]
        means = [mean for _, (mean, _, _) in places]
        errors = [[mean - low for _, (mean, low, _) in places], [high - mean for _, (mean, _, high) in places]]
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(centres, means, width * 0.92, label=_plain(name), color=colour, yerr=errors, ecolor="#5a6370", capsize=2)
        for centre, (_, (mean, _, high)) in zip(centres, places, strict=True):
            axes.annotate(f"{mean:.4g}", (centre, high), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8)
    _name_groups(axes, groups)
    axes.set_ylabel(label)
    if len(series) > 1:
        axes.legend(ncols=min(len(series), 4), loc="upper center", bbox_to_anchor=(0.5, -0.12))


def draw_shares(axes: "Axes", groups: dict[str, dict[str, float]], *, label: str) -> None:
    """One stacked bar per group, with parts that add up to one."""
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    bottoms = [0.0] * len(groups)
    for number, name in enumerate(series):
        shares = [values.get(name, 0.0) for values in groups.values()]
        axes.bar(
            range(len(groups)), shares, 0.7, bottom=bottoms, label=_plain(name), color=COLOURS[number % len(COLOURS)], edgecolor="white"
        )
        for place, (share, bottom) in enumerate(zip(shares, bottoms, strict=True)):
            if share >= 0.06:
                axes.annotate(f"{share:.0%}", (place, bottom + share / 2), ha="center", va="center", fontsize=8, color="white")
        bottoms = [bottom + share for bottom, share in zip(bottoms, shares, strict=True)]
    _name_groups(axes, groups)
    axes.set_ylim(0, 1)
    axes.set_ylabel(label)
    axes.legend(ncols=min(len(series), 3), loc="upper center", bbox_to_anchor=(0.5, -0.12))


def draw_lines(axes: "Axes", lines: dict[str, list[tuple[float, float]]], *, across: str, label: str) -> None:
    """One line per name through its points (x, y), with a marker at each point if there are few."""
    for number, (name, points) in enumerate(lines.items()):
        marker = "o" if len(points) <= 30 else None
        axes.plot(*zip(*points, strict=True), label=_plain(name), color=COLOURS[number % len(COLOURS)], marker=marker, markersize=4)
    axes.set_xlabel(across)
    axes.set_ylabel(label)
    if len(lines) > 1:
        axes.legend()


def draw_points(axes: "Axes", points: dict[str, tuple[float, tuple[float, float, float]]], *, across: str, label: str) -> None:
    """One labeled point (x, (mean, low, high)) per name. The axis is logarithmic if costs are far apart."""
    for number, (name, (x, (mean, low, high))) in enumerate(points.items()):
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(x, mean, yerr=[[mean - low], [high - mean]], fmt="o", color=colour, capsize=2)
        axes.annotate(_plain(name), (x, mean), xytext=(6, 4), textcoords="offset points", fontsize=8.5, color=colour)
    costs = [x for x, _ in points.values()]
    if min(costs) > 0 and max(costs) > 10 * min(costs):
        axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.set_xlabel(across)
    axes.set_ylabel(label)


def _name_groups(axes: "Axes", groups: dict[str, Any]) -> None:
    axes.set_xticks(range(len(groups)), [_plain(name) for name in groups])
    axes.grid(visible=False, axis="x")


def _plain(text: str) -> str:
    """Escape names from files, in which a dollar sign would start a formula."""
    return text.replace("$", r"\$")
