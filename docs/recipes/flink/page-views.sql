-- For RunSql, or sql-client.sh -f page-views.sql with the JARs of the Kafka connector.

CREATE TABLE page_views (
  window_start TIMESTAMP_LTZ(3),
  `trigger` BIGINT,
  of_triggers BIGINT,
  `key` STRING,
  `values` ROW<
    visits ROW<estimate BIGINT, std_error DOUBLE>,
    `bytes` ROW<estimate DOUBLE, std_error DOUBLE>>,
  epoch STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'susurrus.page-views.histogram',
  'properties.bootstrap.servers' = 'localhost:9092',
  -- Flink's default is read_uncommitted, which also shows rows of aborted releases.
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  -- Without the next line the query runs on.
  'scan.bounded.mode' = 'latest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

-- The newest row of each key.
SELECT window_start, `key`, `trigger`, `values`.visits.estimate AS visits, ROUND(1.96 * `values`.visits.std_error, 0) AS margin
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, epoch, `key` ORDER BY `trigger` DESC) AS age FROM page_views
)
WHERE age = 1
ORDER BY visits DESC
LIMIT 5;

-- One page over the day: the topic has every release.
SELECT `trigger`, `values`.visits.estimate AS visits, ROUND(1.96 * `values`.visits.std_error, 0) AS margin
FROM page_views
WHERE `key` = '/ksc.html' AND MOD(`trigger`, 4) = 0
ORDER BY `trigger`;
