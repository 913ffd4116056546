"""Entry point of `python -m meshnn`, the same as the command `meshnn`."""

from meshnn.cli import main

if __name__ == "__main__":
    main()
