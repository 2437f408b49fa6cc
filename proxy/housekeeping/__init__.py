"""Background work that one proxy does for all: retention, and objects that no record needs any more."""
