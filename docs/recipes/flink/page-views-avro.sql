-- As page-views.sql, of a pipeline with output.format = "avro".

CREATE TABLE page_views (
  window_start TIMESTAMP(3),
  `trigger` BIGINT,
  of_triggers BIGINT,
  `key` ROW<url STRING>,
  `values` ROW<
    visits ROW<estimate DOUBLE, std_error DOUBLE, smoothed ROW<estimate DOUBLE, std_error DOUBLE>>,
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
  'format' = 'avro-confluent',
  'avro-confluent.url' = 'http://localhost:8081'
);

-- The number to show of a row: the smoothed one where the row has it.
CREATE TEMPORARY VIEW shown AS
SELECT window_start, epoch, `key`.url AS `key`, `trigger`,
  CAST(COALESCE(`values`.visits.smoothed.estimate, `values`.visits.estimate) AS BIGINT) AS visits,
  ROUND(1.96 * COALESCE(`values`.visits.smoothed.std_error, `values`.visits.std_error), 0) AS margin
FROM page_views;

-- The newest release of each window. The newest row of each key may be older: a key can leave a window.
SELECT window_start, `key`, `trigger`, visits, margin
FROM (
  SELECT *, MAX(`trigger`) OVER (PARTITION BY window_start, epoch) AS newest FROM shown
)
WHERE `trigger` = newest
ORDER BY visits DESC
LIMIT 5;

-- One page over the day: the topic has every release.
SELECT `trigger`, visits, margin
FROM shown
WHERE `key` = '/ksc.html' AND MOD(`trigger`, 4) = 0
ORDER BY `trigger`;
