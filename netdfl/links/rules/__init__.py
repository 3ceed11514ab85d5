"""Link rules: what a link does to the units that cross it, one stage each. Integer nanoseconds, sans-I/O."""
