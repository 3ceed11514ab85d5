"""The page's data of a run, in plain form: the same for the written file and the served page."""

from netdfl.report.data.whole import SCHEMA, page_data

__all__ = ["SCHEMA", "page_data"]
