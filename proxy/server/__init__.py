"""The process: listeners, start, drain, reload, and several processes on the same ports."""
