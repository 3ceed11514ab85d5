"""Link rules from files: attributes of a network graph, or tables of measurements."""
