"""Link rules: the effects of a link on the units that cross it, one stage each. Integer nanoseconds, sans-I/O."""
