"""The data of a run's page as plain values, the same for a page written to a file and for a served one."""

from netdfl.report.data.whole import SCHEMA, page_data

__all__ = ["SCHEMA", "page_data"]
