#!/bin/bash
# Installs the package, uses it, and removes it; then runs the static binary where there is nothing else.
# enter.sh starts this script as process 1 of a clean system.
set -euo pipefail
trap 'echo "FAILED in installed.sh, line $LINENO: $BASH_COMMAND" >&2' ERR

dpkg --install /mnt/packages/tidewire_*.deb /mnt/packages/tidewire-lab_*.deb
version=$(dpkg-query --show --showformat '${Version}' tidewire)
[ "$(tidewire --version)" = "tidewire ${version%-*}" ]
[ -z "$(dpkg --verify tidewire)" ]

[ "$(man --where tidewire)" = /usr/share/man/man1/tidewire.1.gz ]
# The warnings of groff are faults of the page.
faults=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings tidewire 2>&1 >/tmp/page)
[ -z "$faults" ] || { echo "$faults"; false; }
grep --quiet 'tidewire receive' /tmp/page
[ "$(tidewire-lab --version)" = "tidewire-lab ${version%-*}" ]
[ "$(man --where tidewire-lab)" = /usr/share/man/man1/tidewire-lab.1.gz ]
bash -n /usr/share/bash-completion/completions/tidewire-lab
bash -n /usr/share/bash-completion/completions/tidewire
grep --quiet '^#compdef tidewire' /usr/share/zsh/vendor-completions/_tidewire
grep --quiet 'complete -c tidewire' /usr/share/fish/vendor_completions.d/tidewire.fish
zcat /usr/share/doc/tidewire/third-party.txt.gz | grep '^aws-lc-sys ' >/dev/null

systemd-analyze verify /usr/lib/systemd/system/tidewire-*.service
for service in serve receive; do
    tidewire config check "/etc/tidewire/$service.toml"
    systemd-analyze security --offline=yes --no-pager "tidewire-$service.service" | tail -n 1
done

# The static binary finds nothing but a folder for temporary files.
mkdir -p /tmp/empty/tmp
cp /mnt/packages/tidewire-*-linux-musl /tmp/empty/tidewire
[ "$(chroot /tmp/empty /tidewire --version)" = "$(tidewire --version)" ]

# A small file keeps this short. Both demos run at once and share the cores.
head -c 500000 /dev/urandom >/tmp/file
cp /tmp/file /tmp/empty/tmp/file
cd /tmp
chroot /tmp/empty /tidewire demo --json --svg /tmp/demo.svg /tmp/file >/tmp/static.json &
static=$!
tidewire demo --json --svg /tmp/demo.svg /tmp/file >/tmp/installed.json
wait "$static"
for run in installed static; do
    arrived=$(grep --count '"hash_ok":true' "/tmp/$run.json")
    echo "demo, $run: $arrived of 3 files arrived whole"
    [ "$arrived" = 3 ]
done
[ -s /tmp/demo.svg ] && [ -s /tmp/demo-file.svg ]

dpkg --remove tidewire-lab tidewire
[ ! -e /usr/bin/tidewire ] && [ -e /etc/tidewire/serve.toml ]
dpkg --purge tidewire-lab tidewire
[ ! -e /etc/tidewire ]
echo "installed.sh: passed"
