#!/bin/bash
# Installs the package under a running systemd, and uses its services: first without a key, then with one.
# services.service starts this script in a clean system.
set -euo pipefail
trap 'echo "FAILED in services.sh, line $LINENO: $BASH_COMMAND"; systemctl --no-pager --full status "tidewire-*" || true' ERR

# Waits for a line of a service's journal, at most 10 s, and prints the newest match.
journal() {
    for _ in $(seq 100); do
        if journalctl --unit "tidewire-$1" --output cat | grep --only-matching "$2" | tail -n 1 | grep .; then
            return 0
        fi
        sleep 0.1
    done
    echo "the journal of tidewire-$1 lacks: $2"
    return 1
}

dpkg --install /mnt/packages/tidewire_*.deb
client=$(tidewire keygen --pair -o /root/client.key)

for service in serve receive; do
    unit=tidewire-$service.service
    # Without a key: an error that says what to do, and no further start.
    systemctl start "$unit" || true
    journal "$service" "/etc/tidewire/$service.key is missing: as root, run: .*"
    for _ in $(seq 50); do [ "$(systemctl is-active "$unit")" = failed ] && break; sleep 0.1; done
    [ "$(systemctl show --property ExecMainStatus --value "$unit")" = 2 ]
    [ "$(systemctl show --property NRestarts --value "$unit")" = 0 ]
    # With a key and the settings as they are installed.
    tidewire keygen --pair -o "/etc/tidewire/$service.key"
    echo "$client" >>"/etc/tidewire/$service.peers"
    systemctl start "$unit"
    journal "$service" 'tidewire://192.0.2.7:[0-9]*/#twp1[a-z0-9]*'
    [ "$(stat --format %u "/proc/$(systemctl show --property MainPID --value "$unit")")" != 0 ]
done

head -c 3000000 /dev/urandom >/root/sent
tidewire send --quiet --key /root/client.key /root/sent "$(journal receive 'tidewire://.*' | grep -o 'tidewire://[^ '\'']*')"
cmp /root/sent /var/lib/tidewire-receive/sent

# On port 80, the only target that the settings allow, a service that sends back what it gets.
printf '[Socket]\nListenStream=80\nAccept=yes\n' >/run/systemd/system/echo.socket
printf '[Service]\nExecStart=/bin/cat\nStandardInput=socket\n' >/run/systemd/system/echo@.service
systemctl daemon-reload
systemctl start echo.socket
tidewire forward --quiet --key /root/client.key -L 8080:localhost:80 "$(journal serve 'tidewire://.*' | grep -o 'tidewire://[^ '\'']*')" &
forward=$!
answer=
for _ in $(seq 50); do
    answer=$( (exec 3<>/dev/tcp/127.0.0.1/8080 && echo hello >&3 && timeout 5 head -n 1 <&3) 2>/dev/null ) && break
    sleep 0.1
done
kill "$forward"
wait "$forward" || true
[ "$answer" = hello ]

# An upgrade restarts what runs.
before=$(systemctl show --property MainPID --value tidewire-serve.service)
dpkg --install /mnt/packages/tidewire_*.deb
[ "$(systemctl is-active tidewire-serve.service)" = active ]
[ "$(systemctl show --property MainPID --value tidewire-serve.service)" != "$before" ]

if [ -c /dev/net/tun ]; then bash /mnt/scripts/tunnel.sh; else echo "SKIPPED: no /dev/net/tun for the tunnel"; fi

systemctl stop tidewire-serve.service
[ "$(systemctl show --property Result --value tidewire-serve.service)" = success ]
systemctl enable tidewire-receive.service
dpkg --remove tidewire
[ "$(systemctl is-active tidewire-receive.service)" = inactive ]
[ ! -e /etc/systemd/system/multi-user.target.wants/tidewire-receive.service ]
echo "services.sh: passed"
