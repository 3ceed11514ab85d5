"""What a scenario comes to before it runs, and what a scenario can name."""
