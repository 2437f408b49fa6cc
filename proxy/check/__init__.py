"""`diskless-proxy check`: everything that a start needs, tried out, with the remedy of each failure.

One file per concern. Each calls what the start calls, and goes on where the start would end with the first problem.
Nothing that is written for a try is left behind.
"""
