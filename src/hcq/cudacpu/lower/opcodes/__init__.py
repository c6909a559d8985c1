"""The opcodes of PTX: each module fills the table (registry) for those that belong together."""
