"""What a person sees of a run: the live view on the terminal and the HTML page afterwards."""
