"""Link rules from files: the attributes of a drawn network, and tables of what was measured."""
