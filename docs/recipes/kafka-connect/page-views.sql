SELECT key AS url, trigger, visits, round(1.96 * error) AS margin, window_start
FROM (
  -- The number to show: the smoothed one where the row has it.
  SELECT *,
    coalesce(values_visits_smoothed_estimate, values_visits_estimate) AS visits,
    coalesce(values_visits_smoothed_std_error, values_visits_std_error) AS error
  FROM page_views
) AS shown
ORDER BY visits DESC
LIMIT 5;
