"""The only folder that knows Faust and aiokafka: the application, its transport, the group's membership, and record batches."""
