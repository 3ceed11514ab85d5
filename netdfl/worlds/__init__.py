"""Where hosts run, and what time it is there: a file or a folder for each world."""
