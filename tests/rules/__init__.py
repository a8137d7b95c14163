"""Tests of the role prometheus's rules, for promtool: changed.yml with changed variables, the others with defaults."""
