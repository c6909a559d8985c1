"""`python -m hcq.cli`, the same as `hcq`."""

from hcq.cli import main

main()
