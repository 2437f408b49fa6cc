"""Object storage as a plugin: what it promises (`ObjectStorage`), and the one that the settings name (`open_storage`)."""
