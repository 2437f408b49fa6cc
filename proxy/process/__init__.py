"""The process among others on its machine: workers, ports, open files."""
