"""What runs where nodes live, in virtual and in real time alike."""
