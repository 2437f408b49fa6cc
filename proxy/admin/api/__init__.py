"""The JSON of the admin port: one file per resource.

Each resource has two halves. `collect` runs in every process that serves clients, and returns plain values, which can
travel to a parent of workers. `document` runs in the process with the admin port, and makes one JSON document from the
answers of all processes. So a single process and a parent of several workers give the same answers.
"""
