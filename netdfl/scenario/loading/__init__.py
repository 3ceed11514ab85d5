"""From text to checked values and back: places in the file, short forms, overrides, the resolved scenario."""
