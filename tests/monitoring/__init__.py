"""What deploy/monitoring has for Prometheus and Grafana, tried with the real promtool and a real Prometheus."""
