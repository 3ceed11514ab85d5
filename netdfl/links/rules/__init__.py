"""Link rules: the effects of a link on the messages or packets that cross it, one stage each.

They compute in integer nanoseconds, sans-I/O.
"""
