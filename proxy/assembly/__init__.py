"""The parts of one process, put together once."""
