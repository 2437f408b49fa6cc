"""The fault matrix: every fault for every part, under load and without, judged by `diskless-proxy verify`."""
