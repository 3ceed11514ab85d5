"""The views of a run for people: the live view on the terminal and the HTML page afterwards."""
