"""`python -m posthouse` is `posthouse`."""

from posthouse.cli.main import main

if __name__ == "__main__":
    main()
