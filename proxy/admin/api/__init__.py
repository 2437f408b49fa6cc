"""The JSON of the admin port: one file per resource.

Each resource has two halves. `told` runs in every process that serves clients and says what that one knows, as plain
values that travel to a parent of workers. `document` runs where the admin port is and makes one JSON document of what
the processes said. So one process and a parent of several answer alike.
"""
