"""What `experiments/attention.py` compares, and the processes it compares them in.

In the process of a contender run `worker`, `work`, `case`, `memory` and the contender's own file,
with the packages of that contender alone: nothing of gtjax unless the contender is ours. In the
parent run `comparison`, `process`, `environments`, `graphs`, `table` and `picture`.
"""
