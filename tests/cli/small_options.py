"""Options of a run that is over in a second."""

from tests.runs.small_run import DATA

MODEL = ["--model.hidden", "8", "--model.layers", "1", "--model.heads", "2"]
SMALL = ["--data", DATA, "--steps", "3", *MODEL]
