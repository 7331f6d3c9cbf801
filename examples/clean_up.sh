#!/bin/sh
# Takes records out of a mounted store and gives their disk back, with nothing but a shell. It deletes what it says: try it
# on a copy, with at least 20 records.
#
#     zrfs mount photos.zr mnt
#     sh examples/clean_up.sh mnt
#     sh examples/clean_up.sh mnt bad.txt     # and those records, by their paths in tree/, one a line
#
# Where a list is refused, no record of it is deleted, and `echo` fails: "File descriptor busy" is EBUSY, for example.
set -eu
mount=${1:?the mount point is missing}
if ! mountpoint -q "$mount"; then
    echo "$mount is no mount point: zrfs mount STORE $mount" >&2
    exit 1
fi

# One write, one batch: all of it, or nothing.
echo 7 12 > "$mount/delete"

# The last records have moved into the holes, so an index may mean another record now. `delete` says which moved, as pairs of
# index before and after.
python3 -m json.tool --compact "$mount/delete"

# A list of any length, from any program, stands between begin and end. It is applied with the line end, as one batch: its
# indices are those from before it. (Without them a program that writes in pieces would have its later pieces refused.)
{
    echo begin
    seq 0 2 8
    echo end
} > "$mount/delete"
grep -o '"deleted":[0-9]*' "$mount/delete"

# What is refused says why, in the message of the shell and in full in the file.
if echo 4000000000 > "$mount/delete"; then
    exit 1
fi 2> /dev/null
grep -o '"refused":"[^"]*"' "$mount/delete"

# By path, and with each move printed: the command goes through the same file.
if [ $# -gt 1 ]; then
    zrfs delete "$mount" --names "$2"
fi

# The disk comes back in the background, while records are read. `zrfs compact MOUNT` does it with a bar, and waits.
echo 1 > "$mount/compact"
while grep -q '"state": "running"' "$mount/compact"; do
    sleep 0.1
done
grep -oE '"(state|freed)": [^,]*' "$mount/compact"
