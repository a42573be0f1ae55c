"""A toy entry for each table, one file each: what somebody who extends gtjax writes."""
