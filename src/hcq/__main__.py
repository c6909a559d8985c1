"""`python -m hcq`, the same as `hcq`."""

from hcq.cli import main

main()
