"""`diskless-proxy check`: try out everything that a start needs, and report each failure with its remedy.

There is one file per concern. Each calls what the start calls, and continues after the first problem, where the start
would end. Everything that is written for a try is removed.
"""
