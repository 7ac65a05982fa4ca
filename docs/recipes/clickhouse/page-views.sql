-- The consumer: librdkafka, which reads read_committed by default.
CREATE TABLE page_views_queue (
  window_start DateTime64(3, 'UTC'),
  window_end DateTime64(3, 'UTC'),
  trigger UInt16,
  of_triggers UInt16,
  key String,
  values Tuple(
    visits Tuple(estimate Int64, std_error Float64, smoothed Tuple(estimate Nullable(Int64), std_error Nullable(Float64))),
    bytes Tuple(estimate Float64, std_error Float64)),
  epoch String
) ENGINE = Kafka
SETTINGS
  kafka_broker_list = 'localhost:9092',
  kafka_topic_list = 'susurrus.page-views.histogram',
  kafka_group_name = 'clickhouse',
  kafka_format = 'JSONEachRow',
  date_time_input_format = 'best_effort',
  input_format_skip_unknown_fields = 1,
  input_format_json_ignore_unknown_keys_in_named_tuple = 1;

-- A row that is read twice is the same row, and the newest trigger wins.
CREATE TABLE page_views (
  window_start DateTime64(3, 'UTC'),
  window_end DateTime64(3, 'UTC'),
  epoch LowCardinality(String),
  url String,
  trigger UInt16,
  of_triggers UInt16,
  visits Int64,
  visits_std_error Float64,
  bytes Float64,
  bytes_std_error Float64
) ENGINE = ReplacingMergeTree(trigger)
ORDER BY (window_start, epoch, url);

CREATE MATERIALIZED VIEW page_views_rows TO page_views AS
SELECT
  window_start, window_end, epoch, key AS url, trigger, of_triggers,
  -- The number to show: the smoothed one where the row has it.
  coalesce(values.visits.smoothed.estimate, values.visits.estimate) AS visits,
  coalesce(values.visits.smoothed.std_error, values.visits.std_error) AS visits_std_error,
  values.bytes.estimate AS bytes, values.bytes.std_error AS bytes_std_error
FROM page_views_queue;

SELECT url, trigger, visits, round(1.96 * visits_std_error) AS margin, round(bytes / 1000) AS kilobytes
FROM page_views FINAL
-- The newest release of each window. The newest row of each key may be older: a key can leave a window.
WHERE (window_start, epoch, trigger) IN (SELECT window_start, epoch, max(trigger) FROM page_views GROUP BY window_start, epoch)
ORDER BY visits DESC
LIMIT 5;
