#!/bin/sh
# Shows that it lives, and that it keeps its GPU and gets no other, until it is told to end.
while [ ! -e /tmp/long_job.end ]; do
    python3 /usr/local/bin/open_gpus.py
    echo
    sleep 1
done
echo the end
