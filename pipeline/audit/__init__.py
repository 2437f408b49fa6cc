"""The audit: compare the coordinator's index of diskless logs with the objects in storage.

`walk.py` goes through the index and `books.py` through objects and use, both free of Spark. `reads.py` is the work of
the tasks. `second_look.py` decides which suspicions are defects, because everything changes during the audit.
"""
