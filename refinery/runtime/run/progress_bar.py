"""The bar of a stage in a terminal. It is apart from progress.py so that only a terminal waits for `rich` to be imported."""

from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

_DRAWN_PER_SECOND = 4


class ProgressBar(Progress):
    """Title, bar, count and remaining time in the first line, and the text below them, on stderr."""

    def __init__(self, below: Callable[[], str]) -> None:
        self._below = below
        super().__init__(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=Console(stderr=True),
            expand=True,
            refresh_per_second=_DRAWN_PER_SECOND,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar, and the text if there is any."""
        yield self.make_tasks_table(self.tasks)
        if text := self._below():
            yield Text(text, style="dim")
