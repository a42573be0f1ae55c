"""The bar of a terminal: what does not fit beside it stands below it, so that nothing is lost."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gtjax.core.progress import how_much

SHARE_OF_WIDTH = 6  # of the terminal, that the bar takes
NARROWEST, WIDEST = 8, 40


def bar_for(console: Console) -> Progress:
    """Title, bar, how much, time left; then the text, beside them or below."""
    return _Progress(_Title(), _Bar(console), _HowMuch(), TimeRemainingColumn(), console=console)


class _Progress(Progress):
    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            line = self.make_tasks_table([task])
            text = Text(task.fields["text"])
            taken = self.console.measure(line).maximum
            if taken + 1 + text.cell_len <= self.console.width:
                beside = Table.grid(padding=(0, 1))
                beside.add_row(line, text)
                yield beside
            else:
                yield line
                yield Padding(text, (0, 0, 0, 2))


class _Title(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True)


class _Bar(BarColumn):
    """As wide as suits the terminal, also when that changes."""

    def __init__(self, console: Console):
        super().__init__()
        self._console = console

    def render(self, task: Task) -> ProgressBar:
        self.bar_width = min(WIDEST, max(NARROWEST, self._console.width // SHARE_OF_WIDTH))
        return super().render(task)


class _HowMuch(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(how_much(task.completed, task.total or 1.0), style="progress.download")
