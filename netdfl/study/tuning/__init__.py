"""`netdfl tune`: the search for the smallest deadline or quorum with which a fleet reaches a target."""
