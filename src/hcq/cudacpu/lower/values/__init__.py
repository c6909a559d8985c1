"""What operations compute, as code over values: arithmetic, roundings, conversions, products of matrices."""
