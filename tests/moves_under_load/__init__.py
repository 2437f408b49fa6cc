"""Read classic topics while their leaders and replicas move, brokers die and hang, and proxies are killed.

`python -m tests.moves_under_load --seconds 600 --seed 7` starts its own stack, with two brokers in each rack;
`run.moves_under_load` takes an existing one. Producers write unique records, directly and through the proxies. Clients
of several kinds read all records through the proxies; each has a twin at the brokers. A client must get the same
records and errors as its twin.
"""
