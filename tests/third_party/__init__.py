"""A device driver as a third party would write it, on the public names of hcq alone."""
