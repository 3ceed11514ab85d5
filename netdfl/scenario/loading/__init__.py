"""Conversion of a scenario's text to checked values and back: places in the file, short forms, overrides, defaults."""
