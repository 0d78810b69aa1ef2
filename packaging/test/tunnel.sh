#!/bin/bash
# Runs both ends of a tunnel as services, on one machine: tw0 listens, tw1 connects. services.sh starts this
# script under a running systemd, after the package was installed. It needs /dev/net/tun.
set -euo pipefail
trap 'echo "FAILED in tunnel.sh, line $LINENO: $BASH_COMMAND"; journalctl --unit "tidewire-tunnel@*" --output cat | grep --invert-match systemd | tail -n 60' ERR

# Waits until a condition holds, at most 10 s.
until_true() {
    for _ in $(seq 100); do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    echo "in vain: $*"
    return 1
}
says() { journalctl --unit "tidewire-tunnel@$1.service" --output cat | grep --quiet "$2"; }
of() { systemctl show --property "$2" --value "tidewire-tunnel@$1.service"; }
is_up() { [ -e "/sys/class/net/$1" ]; }
is_down() { ! is_up "$1"; }
# The rules of a default route. A system without `ip` has none that could be seen.
rules() { if command -v ip >/dev/null; then ip rule | grep --count '^770[0-4]:' || true; else echo "$1"; fi; }

# Wrong options: an error, and no further start.
install -m 600 /dev/null /etc/tidewire/tunnel-tw0.env
echo 'OPTIONS=--listen 127.0.0.1:7702 --address 10.77.0.0/24' >/etc/tidewire/tunnel-tw0.env
systemctl start tidewire-tunnel@tw0.service || true
until_true says tw0 '10.77.0.0 is no address of a host'
ended_with() { [ "$(of "$1" ExecMainStatus)" = "$2" ]; }
until_true ended_with tw0 2
[ "$(of tw0 NRestarts)" = 0 ]

# With a key by systemd's credentials, so that the link stays the same.
key=/run/credentials/tidewire-tunnel@tw0.service/key
(umask 077 && tidewire keygen | head -n 1 >/etc/tidewire/tunnel-tw0.key)
echo "OPTIONS=--listen 127.0.0.1:7702 --address 10.77.0.1/24 --key $key" >/etc/tidewire/tunnel-tw0.env
systemctl start tidewire-tunnel@tw0.service
until_true says tw0 '^tidewire://127.0.0.1:7702/#'
is_up tw0
[ "$(stat --format %u "/proc/$(of tw0 MainPID)")" != 0 ]

install -m 600 /dev/null /etc/tidewire/tunnel-tw1.env
{
    echo 'OPTIONS=--address 10.78.0.2/32 --route 0.0.0.0/0'
    echo "TIDEWIRE_LINK=$(journalctl --unit tidewire-tunnel@tw0.service --output cat | grep '^tidewire://' | tail -n 1)"
} >/etc/tidewire/tunnel-tw1.env
systemctl start tidewire-tunnel@tw1.service
until_true says tw1 'connected to 127.0.0.1:7702'
is_up tw1
[ "$(rules 5)" = 5 ]

# A killed end comes back by itself, and the other one connects again.
kill -9 "$(of tw0 MainPID)"
until_true says tw1 'connected again'
[ "$(of tw0 NRestarts)" = 1 ]
kill -9 "$(of tw1 MainPID)"
started_again() { [ "$(of "$1" NRestarts)" = 1 ]; }
until_true started_again tw1
until_true is_up tw1

# Stopped by systemd: an orderly end, and nothing is left.
for end in tw1 tw0; do
    systemctl stop "tidewire-tunnel@$end.service"
    [ "$(of $end Result)" = success ]
    is_down $end
done
[ "$(rules 0)" = 0 ]
rm /etc/tidewire/tunnel-tw?.*
echo "tunnel.sh: passed"
