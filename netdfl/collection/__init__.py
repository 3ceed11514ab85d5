"""The runs of a folder: found, listed, filtered, labeled, compared, thrown away, queried by SQL."""
