"""Links that flows share: max-min fair rates for everything under way at once."""
