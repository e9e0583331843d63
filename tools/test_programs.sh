#!/usr/bin/env bash
# The programs that some tests drive: a browser, a pooler, Prometheus' checker, the model checker and a C compiler.
# As root on Debian they are installed; elsewhere one line says what is missing and how to get it.
set -euo pipefail

missing=()
command -v chromium > /dev/null || missing+=(chromium)
command -v promtool > /dev/null || missing+=(prometheus)
command -v spin > /dev/null || missing+=(spin)
command -v gcc > /dev/null || missing+=(gcc libc6-dev)
command -v pgbouncer > /dev/null || [ -x /usr/sbin/pgbouncer ] || missing+=(pgbouncer)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -q > /dev/null && apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null; then
        exit 0
    fi
fi
echo "Some tests will be skipped: missing ${missing[*]}. On Debian or Ubuntu: sudo apt-get install ${missing[*]}"
