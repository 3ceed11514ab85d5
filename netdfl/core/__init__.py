"""Types of messages, the clock, named random streams, errors and units, which all other packages use."""
