"""What `experiments/attention.py` compares, and the processes it compares them in.

The files up to `worker.py` run in the process of one contender, with the packages of that contender
alone; they import nothing of gtjax unless the contender is ours. The others run in the parent.
"""
