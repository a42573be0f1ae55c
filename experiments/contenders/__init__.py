"""What `attention.py`, `ops.py` and `before_after.py` compare, and the processes they do it in.

In the process of a contender run `worker`, `work`, `case`, `kinds`, `memory` and the contender's
own file, with the packages of that contender alone: nothing of gtjax unless the contender is ours.
In the parent run `arguments`, `comparison`, `process`, `environments`, `graphs`, `table` and
`picture`.
"""
