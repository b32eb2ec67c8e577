#!/bin/sh
# First process of the guest. The root it starts on is the host's, read-only; it makes a root of
# its own that shows only what a cell needs, moves there and lets go of the host's. Where things
# lie on the host reaches it by the file beside it, never by the kernel's command line, so that
# the same cell started from another folder is the same cell.
set -e
# PROJECT VENV PYTHON_HOME CELL GUEST_COMMAND GUEST_MORE; /proc is the host's yet
. /proc/self/cwd/guest.env
case "$GUEST_MORE" in *UML_MODULES*)
    # In a user namespace the host's root looks like anyone: programs that are set-uid root, as
    # mount is, would make this one anyone too.
    [ -n "$NO_SETUID" ] || NO_SETUID=1 exec setpriv --no-new-privs /bin/sh /proc/self/cwd/init.sh
esac
mount -t proc none /proc
mount -t tmpfs none /run
R=/run
show() {  # show HOST-PATH GUEST-PATH [rw]
    mkdir -p "$R$2"
    # as mount(2): newer ones (util-linux 2.39) take the path for the name of an option
    LIBMOUNT_FORCE_MOUNT2=always mount -t hostfs -o "${3:-ro},$1" none "$R$2"
}
show /usr /usr
for d in bin sbin lib lib32 lib64 libx32; do
    [ -L /$d ] && ln -s usr/$d $R/$d
done
[ -L /lib ] || show /lib /lib
[ -L /lib64 ] || [ ! -d /lib64 ] || show /lib64 /lib64
case "$PYTHON_HOME" in /usr | /usr/*) ;; *) show "$PYTHON_HOME" "$PYTHON_HOME" ;; esac
for d in iproute2 alternatives; do
    [ ! -d /etc/$d ] || show /etc/$d /etc/$d
done
show "$PROJECT" /opt/project
show "$VENV" /opt/venv
show "$CELL" /cell rw
mkdir -p $R/etc $R/tmp $R/run $R/dev $R/proc $R/sys $R/root $R/var $R/old
cp /etc/ld.so.cache $R/etc/ 2>/dev/null || true
echo 'root:x:0:0::/root:/bin/sh' > $R/etc/passwd
echo 'root:x:0:' > $R/etc/group
echo '127.0.0.1 localhost' > $R/etc/hosts
echo 'hosts: files' > $R/etc/nsswitch.conf
mount -t devtmpfs none $R/dev
mkdir -p $R/dev/pts $R/dev/shm
mount -t devpts none $R/dev/pts
mount -t tmpfs none $R/dev/shm
mount -t proc none $R/proc
mount -t sysfs none $R/sys
mkdir -p $R/cgroup
for c in cpu,cpuacct memory pids freezer; do
    mkdir $R/cgroup/$c
    mount -t cgroup -o $c none $R/cgroup/$c || rmdir $R/cgroup/$c
done
cd $R
umount /proc
pivot_root . old
umount -l /old
rmdir /old
ip link set lo up
cd /opt/project
exec env -i PATH=/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 \
    MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184 \
    MALLOC_TOP_PAD_=268435456 MALLOC_ARENA_MAX=1 $GUEST_MORE \
    ${GUEST_COMMAND:-/opt/venv/bin/python -m testbed.first}
