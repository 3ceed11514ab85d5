"""The command `netdfl doctor`: checks whether machines are suitable for a fleet, with remedies."""
