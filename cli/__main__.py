"""`python -m stoker.cli`: the same as the `stoker` command."""

from stoker.cli.main import main

if __name__ == "__main__":
    main()
