"""Algorithms of decentralized and federated learning: a function for each, their round loops and wait policies."""
