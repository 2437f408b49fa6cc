"""The conformance suite: scenarios that unmodified clients run at the brokers and through the proxies.

`model.py` defines what a client can do. `clients/` has one adapter per client, `scenarios/` the steps and observations,
`ways.py` the places to run them, `differences.py` the intended differences. `test_conformance.py` compares.
"""
