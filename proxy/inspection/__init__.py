"""Looks at coordinator, object storage and shadows for the command line; nothing is changed, no proxy has to run."""
