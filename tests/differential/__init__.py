"""Run generated operations on a classic topic at the brokers and on a diskless one through the proxies, and compare.

`python -m tests.differential --help`. A run consists of *cases*. Each has its own pair of topics and a sequence of
operations (`operations.py`) that its seed decides (`generate.py`). Every answer is brought into a form without names
and times of its side (`views.py`) and compared field by field. Only the differences of `differences.py` are allowed,
which are those of docs/differences.md. If a case finds another difference, its operations are reduced: fewer and fewer
of them are applied to new topics, as long as the difference stays (`shrink.py`).
"""
