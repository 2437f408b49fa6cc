"""Generated operations on a classic topic at the brokers and on a diskless one through the proxies, answers compared.

`python -m tests.differential --help`. A run consists of *cases*: each has a pair of topics of its own and a sequence
of operations (`operations.py`) that its seed decides (`generate.py`). Every answer is brought into a form without
names and times of its side (`views.py`) and compared field by field, but for the differences of `differences.py`,
which are those of docs/differences.md. The operations of a case that found another one are cut down, by applying
fewer and fewer of them to new topics, as long as the difference stays (`shrink.py`).
"""
