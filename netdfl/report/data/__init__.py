"""What the page shows of a run, as plain data: the same for the file that is written and the page that is served."""

from netdfl.report.data.whole import SCHEMA, page_data

__all__ = ["SCHEMA", "page_data"]
