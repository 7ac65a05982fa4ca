-- duckdb < page-views.sql, in the folder with the file that
-- susurrus watch --config pipeline.toml --export parquet --output page-views.parquet has written.

-- The pages with the most visits, with 95 % intervals. `direct` has independent errors: for sums over keys, add those.
SELECT url, visits, round(1.96 * visits_std_error) AS ±, round(bytes / 1000) AS kilobytes
FROM 'page-views.parquet'
ORDER BY visits DESC
LIMIT 5;

-- Per folder: estimates of many keys add up, and so do the squares of independent errors.
SELECT
    split_part(url, '/', 2) AS folder,
    count(*) AS pages,
    sum(visits_direct) AS visits,
    round(1.96 * sqrt(sum(visits_direct_std_error ** 2))) AS ±
FROM 'page-views.parquet'
GROUP BY folder
ORDER BY visits DESC
LIMIT 5;

-- Instants are timestamps, so they can be subtracted. DuckDB shows them in your time zone.
SELECT DISTINCT window_end - window_start AS window_length, trigger_time - window_start AS covered, trigger, of_triggers
FROM 'page-views.parquet';
