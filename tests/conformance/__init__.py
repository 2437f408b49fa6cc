"""The conformance suite: scenarios that unmodified clients run at the brokers and through the proxies.

`model.py` says what a client can be asked for, `clients/` has one adapter for each, `scenarios/` says what is done and
observed, `ways.py` where, `differences.py` what differs on purpose. `test_conformance.py` compares.
"""
