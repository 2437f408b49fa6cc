"""The previous release and this one side by side: how a rolling upgrade, and a way back, affect clients."""
