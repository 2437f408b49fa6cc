"""Snapshots of the coordinator's store in object storage, and what they make unnecessary: the journal's old records."""
