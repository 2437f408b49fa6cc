"""The handlers of all APIs that are rewritten or intercepted, one file per API, built by `proxy/assembly/`.

Each is an object that was given its parts, and is called with a client and a request (`client/handler.py`).
"""
