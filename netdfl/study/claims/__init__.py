"""The papers' claims as data, decided by paired differences over seeds."""
