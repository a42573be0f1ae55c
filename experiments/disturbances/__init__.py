"""What `experiments/chaos.py` does to runs.

A file for each row of its table, which gives a `ROW`, and one line in `chaos.py`; `runs` starts and
reads the runs.
"""
