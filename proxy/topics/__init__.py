"""Diskless topics and their configs."""
