"""Test hosts: containers that boot a real systemd, reached by ssh like any machine. See README.md beside this file."""
