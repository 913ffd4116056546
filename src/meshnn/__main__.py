"""`python -m meshnn` is the command line."""

from meshnn.cli import main

if __name__ == "__main__":
    main()
