"""Output of the commands, their settings file, and their requests to the admin port."""
