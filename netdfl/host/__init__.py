"""The hosting of nodes: everything that runs on a node's machine, in virtual and in real time alike."""
