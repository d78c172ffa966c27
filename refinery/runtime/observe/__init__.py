"""What monitoring is told: metrics and traces."""
