"""`netdfl doctor`: whether machines are fit for a fleet, and what to do where they are not."""
