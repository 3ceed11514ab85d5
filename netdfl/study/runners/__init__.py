"""Where the runs of a study are made: an interface of three methods, and the processes of this machine as one of it."""
