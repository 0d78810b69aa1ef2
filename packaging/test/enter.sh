#!/bin/sh
# Makes a clean system and starts a program in it as process 1. `cargo xtask package --test` runs this script
# in new namespaces of mounts, processes, network and cgroups: mounts and processes end with process 1.
#
# enter.sh BASE PACKAGES LOG PROGRAM [ARGUMENT...]
#   BASE       a Debian system by debootstrap; an overlay in memory takes all changes
#   PACKAGES   folder that becomes /mnt/packages, read-only
#   LOG        folder that becomes /mnt/log; the changes are mounted beside it
set -eu
base=$1 packages=$2 log=$3
shift 3

mount --make-rprivate /
system=$(dirname "$log")/system
mkdir -p "$system"
mount -t tmpfs tmpfs "$system"
mkdir "$system/upper" "$system/work" "$system/root"
mount -t overlay -o "lowerdir=$base,upperdir=$system/upper,workdir=$system/work" overlay "$system/root"
scripts=$(realpath "$(dirname "$0")")
cd "$system/root"
mkdir -p mnt/packages mnt/log mnt/scripts old
mount --bind "$packages" mnt/packages
mount -o remount,bind,ro mnt/packages
mount --bind "$log" mnt/log
mount --bind "$scripts" mnt/scripts
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup 2>/dev/null || echo "no cgroup2 here"
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs dev
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
if [ -c /dev/net/tun ]; then
    mkdir dev/net
    # For every user, as udev makes it.
    mknod --mode=666 dev/net/tun c 10 200
fi
mkdir dev/pts dev/shm
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx

# debootstrap writes no hosts file, and copies a list of name servers that nobody can reach from here.
echo '127.0.0.1 localhost' >etc/hosts
: >etc/resolv.conf

# `serve` and `receive` print the address of the default route. Nothing leaves loopback.
ip link set lo up
ip address add 192.0.2.7/32 dev lo
ip route add default dev lo src 192.0.2.7

# The root has to be a mount that is shared: systemd prepares the namespaces and credentials of services so.
pivot_root . old
exec env -i PATH=/usr/sbin:/usr/bin HOME=/root TERM=dumb container=other \
    chroot . /bin/sh -c 'umount -l /old && rmdir /old && mount --make-rshared / && exec "$@"' sh "$@"
