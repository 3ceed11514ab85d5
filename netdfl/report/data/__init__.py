"""The data of a run's page, in plain form, which are the same for the written file and the served page."""

from netdfl.report.data.whole import SCHEMA, page_data

__all__ = ["SCHEMA", "page_data"]
