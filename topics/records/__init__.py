"""From the fields of users' records to columns: which field is what, which numbers and times are read, and why one is not."""
