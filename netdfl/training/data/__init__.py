"""Datasets: sources, partitions over clients, and augmentation of inputs."""
