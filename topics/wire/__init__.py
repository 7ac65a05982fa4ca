"""How columns and rows become bytes and come back: packed blocks, rows of JSON and their schema, and Kafka's partitioner."""
