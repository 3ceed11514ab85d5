"""`netdfl doctor`: checks whether machines are fit for a fleet, with remedies."""
