"""Algorithms: families (the loops), the catalog (one function each), wait policies."""
