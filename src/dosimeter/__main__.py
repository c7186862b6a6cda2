"""`python -m dosimeter` is the command line."""

from dosimeter.cli import main

main()
