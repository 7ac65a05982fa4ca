package susurrus;

/** What a record or an item of one says: its key, its user and its value. */
record Observation(String key, String user, long value) {}
