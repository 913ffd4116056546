"""`python -m meshnn` is the command line."""

from meshnn.cli import main

main()
