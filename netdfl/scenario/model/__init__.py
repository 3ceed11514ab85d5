"""What a scenario file can hold: the schema, its blocks, and the parts that they choose from."""
