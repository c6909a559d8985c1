"""The benchmarks: every row of the budgets, beside peers on the same work and beside its raw cost, in one run.

`python -m benchmarks` from the root of a checkout (or `hcq bench`). What lives where: rows.py says what is measured,
workers/ how, one file a peer; peers.py makes the peers' virtual environments; worker.py is our end of the protocol;
run.py interleaves the rounds; report.py prints.
"""
