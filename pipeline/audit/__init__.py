"""The audit: what the coordinator says of diskless logs, held against the objects that are there.

`walk.py` goes through the index and `books.py` through objects and use, both free of Spark; `reads.py` is what tasks
do; `second_look.py` decides which suspicions are defects, as everything changes while it is looked at.
"""
