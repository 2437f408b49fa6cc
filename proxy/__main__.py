"""`python -m proxy`: the same as `diskless-proxy`."""

from proxy.cli import main

if __name__ == "__main__":
    main()
