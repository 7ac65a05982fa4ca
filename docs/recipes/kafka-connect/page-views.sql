SELECT key AS url, trigger, values_visits_estimate AS visits, round(1.96 * values_visits_std_error) AS margin, window_start
FROM page_views
ORDER BY visits DESC
LIMIT 5;
