"""Algorithms: families (the round loops), the catalog (one function each), wait policies."""
