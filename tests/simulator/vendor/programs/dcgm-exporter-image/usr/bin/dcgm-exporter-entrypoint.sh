#!/bin/sh
exec /usr/bin/dcgm-exporter "$@"
