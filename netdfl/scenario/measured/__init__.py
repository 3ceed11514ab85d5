"""Link rules from files: the attributes of a drawn network, or tables of measurements."""
