"""`python -m pavane`: the same as the `pavane` script."""

from pavane.cli.entry import main

main()
