"""The bar of a terminal: on a narrow one its end is cut, where what matters least is said."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Column
from rich.text import Text

from gtjax.core.progress import how_much

SHARE_OF_WIDTH = 6  # of the terminal, that the bar takes
NARROWEST, WIDEST = 8, 40


def bar_for(console: Console) -> Progress:
    """Title, bar, how much, time left; then the text, as far as there is room."""
    return Progress(
        _Title(), _Bar(console), _HowMuch(), TimeRemainingColumn(), _Rest(), console=console
    )


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


class _Rest(ProgressColumn):
    """The only column that gives way."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=False))

    def render(self, task: Task) -> Text:
        return Text(task.fields["text"], no_wrap=True, overflow="ellipsis")
