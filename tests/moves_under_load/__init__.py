"""Reads of classic topics while their leaders and replicas move, brokers die and hang, and proxies are killed.

`python -m tests.moves_under_load --seconds 600 --seed 7` starts a stack of its own, with two brokers in each rack;
`run.moves_under_load` takes one that is there. Producers write unique records, directly and through the proxies;
clients of several kinds read all of them through the proxies, each beside a twin at the brokers. What a client gets,
and what it is told, has to be what its twin gets and is told.
"""
