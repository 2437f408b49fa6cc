"""The release before and this one, side by side: what a rolling upgrade, and a way back, do to clients."""
