//! The mount, seen as other programs see it. Each test quotes the guarantees of docs/SEMANTICS.md that it proves.
//!
//! Needs /dev/fuse, and root or fusermount3. Tests run side by side, each in a folder of its own.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that goes wrong should stop"
)]
#![cfg(feature = "fuse")]

mod batches;
mod control;
mod options;
mod place;
mod tree;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use place::{Place, text, wait_for, zrfs};
use zrfs::dataset::Schema;
use zrfs::{Codec, Store, Version};

fn noise(len: usize) -> Vec<u8> {
    let mut state = len as u64 | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn waves(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 5) % 251) as u8).collect()
}

/// Records of all kinds: the even ones are deflated where that pays, the odd ones raw.
fn kinds() -> Vec<Vec<u8>> {
    let sizes = [1, 100, 4095, 4096, 4097, 131_071, 131_072, 131_073, 1 << 20, 5_000_000];
    let mut records = vec![Vec::new(), Vec::new()];
    for size in sizes {
        records.extend([waves(size), noise(size)]);
    }
    records
}

/// > The root lists README, batches, compact, delete, records and stats, tree where the store has names, array.npy where it has a schema, and nothing else.
/// > records/ holds every record by its index: eight digits, a dot and the extension.
/// > Any other spelling of a record's name is no such file.
/// > A listing can be resumed at any entry and tells every name once.
#[test]
fn names() {
    let place = Place::new();
    let store = Store::create(place.store(), Version::V1).unwrap();
    store.append(&[7; 3000], 1, Codec::Raw).unwrap();
    store.sync().unwrap();
    place.mount(&[]);
    let list = |path: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(list(&place.mnt()), ["README", "batches", "compact", "delete", "records", "stats"]);
    let expected: Vec<_> = (0..3000).map(|i| format!("{i:08}.bin")).collect();
    assert_eq!(list(&place.mnt().join("records")), expected);

    let dir = rustix::fs::open(
        place.mnt().join("records"),
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let mut seen = HashSet::new();
    let mut offsets = vec![0];
    let mut entries = rustix::fs::Dir::read_from(&dir).unwrap();
    while let Some(entry) = entries.read() {
        let entry = entry.unwrap();
        assert!(seen.insert(entry.file_name().to_owned()), "told twice");
        offsets.push(entry.offset());
    }
    assert_eq!(seen.len(), 3002);
    for at in [1, 2, 3, 1500, 3001] {
        let mut entries = rustix::fs::Dir::read_from(&dir).unwrap();
        entries.seek(offsets[at]).unwrap();
        let rest = std::iter::from_fn(|| entries.read()).count();
        assert_eq!(rest, 3002 - at, "resumed behind {at} entries");
    }

    for name in
        ["0.bin", "00000000", "00000000.png", "000000000.bin", "00003000.bin", "99999999.bin", "-0000001.bin"]
    {
        let e = fs::metadata(place.mnt().join("records").join(name)).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ENOENT), "{name}");
    }
}

/// > The extension is that of the record's name, if it has one; else npy where the store has a schema, else bin; `-o ext=` sets one for all.
/// > A .npy file in records/ is a whole .npy file: NumPy's header, then the record's bytes.
#[test]
fn dense_records_are_npy_files() {
    let place = Place::new();
    let store = Store::create(place.store(), Version::V1).unwrap();
    let schema = Schema::new("<f4", &[3, 5], Codec::default()).unwrap();
    schema.write(&store).unwrap();
    let bytes: Vec<u8> = (0..150u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    store.append(&bytes[..300], 60, Codec::Raw).unwrap();
    store.append(&bytes[300..], 60, Codec::default()).unwrap();
    store.sync().unwrap();
    place.mount(&[]);
    for i in 0..10 {
        let file = fs::read(place.mnt().join(format!("records/{i:08}.npy"))).unwrap();
        let npy = npyz::NpyFile::new(&file[..]).unwrap();
        assert_eq!((npy.dtype().descr().as_str(), npy.shape()), ("'<f4'", &[3, 5][..]));
        let expected: Vec<f32> = (i * 15..(i + 1) * 15).map(|i| i as f32).collect();
        assert_eq!(npy.into_vec::<f32>().unwrap(), expected);
        // In pieces that cut the header and the record.
        let handle = File::open(place.mnt().join(format!("records/{i:08}.npy"))).unwrap();
        for at in (0..file.len()).step_by(13) {
            let mut piece = [0; 29];
            let n = handle.read_at(&mut piece, at as u64).unwrap();
            assert_eq!(piece[..n], file[at..][..n]);
        }
    }
    assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
    place.wait_for_end();
    place.mount(&["ext=f32"]);
    assert_eq!(fs::read(place.mnt().join("records/00000001.f32")).unwrap(), bytes[60..120]);
}

/// > A file in records/ has exactly the record's bytes, at every offset and in pieces of every size.
/// > A read that reaches past the end of a file returns what lies before it, and one behind the end returns nothing.
/// > A mapped file shows the same bytes as a read one.
/// > An empty record is an empty file, and a record of many MiB is read whole.
#[test]
fn bytes() {
    let place = Place::new();
    let records = kinds();
    place.fill(&records);
    place.mount(&[]);
    for (i, record) in records.iter().enumerate() {
        assert!(&fs::read(place.record(i)).unwrap() == record, "record {i}");
        let file = File::open(place.record(i)).unwrap();
        for (at, len) in [(0, 1), (1, 4096), (4095, 2), (131_071, 131_074), (record.len() / 2, 1 << 20)] {
            let mut piece = vec![0; len];
            let n = file.read_at(&mut piece, at as u64).unwrap();
            let expected = &record[at.min(record.len())..(at + len).min(record.len())];
            assert!(&piece[..n] == expected, "record {i} from {at}");
        }
        assert_eq!(file.read_at(&mut [0; 9], record.len() as u64 + 5).unwrap(), 0);
        if !record.is_empty() {
            // SAFETY: nobody changes the store while the mapping lives.
            #[allow(unsafe_code)]
            let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
            assert!(map[..] == record[..], "record {i} mapped");
        }
    }
}

/// > Many readers at once read the same bytes as one alone.
#[test]
fn many_readers() {
    let place = Place::new();
    let records = kinds();
    place.fill(&records);
    for threads in ["threads=1", "threads=3"] {
        place.mount(&[threads]);
        std::thread::scope(|scope| {
            for reader in 0..8 {
                let (place, records) = (&place, &records);
                scope.spawn(move || {
                    for i in 0..records.len() {
                        let i = (i * 7 + reader) % records.len();
                        assert!(fs::read(place.record(i)).unwrap() == records[i], "record {i}");
                    }
                });
            }
        });
        assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
        place.wait_for_end();
    }
}

/// > Once read, a file's pages stay in memory when it is closed.
/// > stats is JSON of a fixed size, and what an open stats file says does not change until it is closed.
/// > stats counts the reads, bytes and errors of this mount, how often a decoded record that was read in pieces was in memory or not, and the bytes of those that are.
/// > README says what each file of the mount is.
#[test]
fn pages_and_stats() {
    let place = Place::new();
    place.fill(&kinds());
    place.mount(&[]);
    let stats = || -> serde_json::Value {
        let text = fs::read_to_string(place.mnt().join("stats")).unwrap();
        assert_eq!(text.len() as u64, place.mnt().join("stats").metadata().unwrap().len());
        serde_json::from_str(&text).unwrap()
    };
    let before = stats();
    assert_eq!((&before["records"], &before["counters"]["reads"]), (&22.into(), &0.into()));
    let open = File::open(place.mnt().join("stats")).unwrap();
    assert_eq!(fs::read(place.record(6)).unwrap().len(), 4095);
    let after = stats();
    assert_eq!((&after["counters"]["reads"], &after["counters"]["bytes"]), (&1.into(), &4095.into()));
    fs::read(place.record(6)).unwrap();
    assert_eq!(stats()["counters"]["reads"], 1, "the second read came from memory");
    // Record 20 has 5 MB, deflated: it is decoded for its first piece.
    fs::read(place.record(20)).unwrap();
    let counters = &stats()["counters"];
    assert_eq!(counters["cache_misses"], 1, "{counters}");
    assert!(counters["cache_hits"].as_u64() > Some(2) && counters["cache_bytes"] == 5_000_000, "{counters}");
    let mut text = String::new();
    { &open }.read_to_string(&mut text).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), before);
    let mut again = vec![0; 100];
    open.read_exact_at(&mut again, 50).unwrap();
    assert_eq!(again, text.as_bytes()[50..150]);
    let readme = fs::read_to_string(place.mnt().join("README")).unwrap();
    for name in ["records/", "stats", "README", "delete", "compact", "batches/"] {
        assert!(readme.contains(name), "{name}");
    }
}

/// > The size of a file is exact, and its blocks are the size in units of 512 bytes, rounded up.
/// > Records without a name have mode 0444 and directories 0555; `-o umask=` takes bits away, `-o uid=` and `-o gid=` set the owner.
/// > The time of a record without a name is the store's last change before the mount, and stands still; that of records/ and stats moves with the store; none is zero.
/// > The inode number of a record is made of its index, so it is the same in every mount where no record was deleted.
/// > The size of the file system is what the store takes on disk, and none of it is free.
#[test]
fn attributes() {
    let place = Place::new();
    let records = kinds();
    place.fill(&records);
    let mut inodes = Vec::new();
    for options in [&[][..], &["umask=027", "uid=12345", "gid=54321"]] {
        place.mount(options);
        let (file_mode, dir_mode) = if options.is_empty() { (0o444, 0o555) } else { (0o440, 0o550) };
        let changed = place.store().join("meta.zr").metadata().unwrap().modified().unwrap();
        let mut numbers = Vec::new();
        for (i, record) in records.iter().enumerate() {
            let meta = place.record(i).metadata().unwrap();
            assert_eq!(meta.len(), record.len() as u64);
            assert_eq!(meta.blocks(), meta.len().div_ceil(512));
            assert_eq!(meta.permissions().mode() & 0o7777, file_mode);
            assert_eq!((meta.modified().unwrap(), meta.nlink()), (changed, 1));
            assert!(meta.mtime() > 0 && meta.ctime() > 0 && meta.atime() > 0);
            if !options.is_empty() {
                assert_eq!((meta.uid(), meta.gid()), (12345, 54321));
            }
            numbers.push(meta.ino());
        }
        inodes.push(numbers);
        let meta = place.mnt().join("records").metadata().unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, dir_mode);
        let space = rustix::fs::statvfs(place.mnt()).unwrap();
        let taken: u64 = ["meta.zr", "0.zr", ".zrfs/checksums", ".zrfs/journal"]
            .map(|f| place.store().join(f).metadata().unwrap().blocks() * 512)
            .iter()
            .sum();
        assert_eq!(space.f_blocks * space.f_frsize, taken.div_ceil(4096) * 4096);
        assert_eq!((space.f_bfree, space.f_bavail, space.f_ffree), (0, 0, 0));
        // The root and the six names in it.
        assert_eq!(space.f_files, records.len() as u64 + 7);
        assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
        place.wait_for_end();
    }
    assert_eq!(inodes[0], inodes[1]);
}

/// > Records that any process has appended and synced show up within a second, in listings too, and their names at once.
#[test]
fn growth() {
    let place = Place::new();
    place.fill(&[vec![1; 10]]);
    place.mount(&[]);
    let count = || fs::read_dir(place.mnt().join("records")).unwrap().count();
    assert_eq!(count(), 1);
    let before = place.mnt().join("records").metadata().unwrap().modified().unwrap();
    assert!(!place.record(1).exists());
    let store = Store::open(place.store()).unwrap();
    store.append(&[2; 30], 10, Codec::Raw).unwrap();
    store.sync().unwrap();
    assert_eq!(fs::read(place.record(1)).unwrap(), [2; 10], "by name, at once");
    let begin = Instant::now();
    wait_for("the listing shows it", || count() == 4);
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    let time = |path: PathBuf| path.metadata().unwrap().modified().unwrap();
    wait_for("the time shows it", || time(place.mnt().join("records")) > before);
    assert!(time(place.mnt().join("stats")) > before);
    assert_eq!((time(place.record(0)), time(place.record(3))), (before, before));
}

/// > While a store is mounted, delete, compact, repair and seal by other processes are refused, and the refusal names the daemon.
#[test]
fn changes_by_others() {
    let place = Place::new();
    place.fill(&[vec![1; 10], vec![2; 10]]);
    place.mount(&[]);
    let daemon = format!("process {} (zrfs)", place.daemons()[0]);
    let store = Store::open(place.store()).unwrap();
    let refused = |result: zrfs::Result<()>| {
        let e = result.unwrap_err();
        assert!(e.kind() == zrfs::ErrorKind::Busy && e.to_string().contains(&daemon), "{e}");
    };
    refused(store.delete(&[0]).map(drop));
    refused(store.compact(|_| std::ops::ControlFlow::Continue(())).map(drop));
    refused(store.seal().map(drop));
    refused(Store::repair(place.store(), |_| ()).map(drop));
    assert_eq!(fs::read(place.record(0)).unwrap(), [1; 10]);
    assert_eq!(store.append(&[3; 10], 10, Codec::Raw).unwrap(), 2);
}

/// > A record that does not fit the format or does not decode costs that record alone: reading it gives EIO, and a log line names it.
/// > A chunk cut short under the mount gives EIO for the records behind its end, never zeros and never fewer bytes.
/// > A record table cut short under the mount gives EIO for the records behind its end.
#[test]
fn damage() {
    let eio = |path: PathBuf| match fs::read(&path) {
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO), "{}", path.display()),
        Ok(bytes) => panic!("{}: {} bytes", path.display(), bytes.len()),
    };
    let records: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; 9000]).collect();

    let place = Place::new();
    place.fill(&records);
    let log = place.dir.path().join("log");
    let meta = File::options().write(true).open(place.store().join("meta.zr")).unwrap();
    meta.write_all_at(&[9], 16 + 16 * 7 + 14).unwrap();
    place.mount(&[&format!("log={}", log.display())]);
    eio(place.record(7));
    for i in (0..40).filter(|&i| i != 7) {
        assert_eq!(fs::read(place.record(i)).unwrap(), records[i]);
    }
    // A record that decodes no more, after its size was told.
    let store = Store::open_read_only(place.store()).unwrap();
    let loc = store.location(8).unwrap();
    let chunk = File::options().write(true).open(place.store().join("0.zr")).unwrap();
    chunk.write_all_at(&vec![0xff; loc.phys_length as usize], u64::from(loc.offset)).unwrap();
    let fresh = Place::new();
    assert!(
        zrfs(&["mount", "-o", &format!("log={}", log.display())], &[&place.store(), &fresh.mnt()])
            .status
            .success()
    );
    eio(fresh.record(8));
    wait_for("the log names it", || fs::read_to_string(&log).unwrap().contains("record 8 "));

    // Cut, from here on: read nothing before, so that nothing is in memory.
    let place = Place::new();
    place.fill(&records);
    place.mount(&[]);
    let store = Store::open_read_only(place.store()).unwrap();
    let cut = store.location(21).unwrap();
    let chunk = File::options().write(true).open(place.store().join("0.zr")).unwrap();
    chunk.set_len(cut.end() - 1).unwrap();
    for (i, record) in records.iter().enumerate() {
        match store.location(i as u64).unwrap().end() < cut.end() {
            true => assert_eq!(&fs::read(place.record(i)).unwrap(), record),
            false => eio(place.record(i)),
        }
    }
    let meta = File::options().write(true).open(place.store().join("meta.zr")).unwrap();
    meta.set_len(16 + 16 * 10).unwrap();
    let fresh = Place::new();
    fresh.fill(&records);
    fresh.mount(&[]);
    let meta = File::options().write(true).open(fresh.store().join("meta.zr")).unwrap();
    meta.set_len(16 + 16 * 10).unwrap();
    for (i, record) in records.iter().enumerate() {
        match i < 10 {
            true => assert_eq!(&fs::read(fresh.record(i)).unwrap(), record),
            false => eio(fresh.record(i)),
        }
    }
    let stats = fs::read_to_string(fresh.mnt().join("stats")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&stats).unwrap()["damaged"], 30);
    rustix::fs::statvfs(fresh.mnt()).unwrap();
}

/// > When `zrfs mount` returns the mount answers, and when it fails its message and exit status say so.
/// > A store is mounted once at one place: the same mount again is refused.
/// > A mount that would hide its own store, or lie in it, is refused.
#[test]
fn mounting() {
    let place = Place::new();
    let failed = |output: Output, says: &str| {
        assert_eq!(output.status.code(), Some(1));
        let text = text(&output);
        assert!(text.contains(says) && text.lines().count() == 1, "{text}");
        assert_eq!(output.stdout, b"");
    };
    failed(zrfs(&["mount"], &[&place.store(), &place.mnt()]), "no store at");
    failed(zrfs(&["mount"], &[place.dir.path(), &place.mnt()]), "holds no meta.zr");
    place.fill(&[vec![1; 10]]);
    failed(zrfs(&["mount"], &[&place.store(), &place.dir.path().join("gone")]), "mkdir -p");
    failed(zrfs(&["mount"], &[&place.store(), &place.store().join("meta.zr")]), "not a folder");
    let output = zrfs(&["mount", "-o", "wibble=1"], &[&place.store(), &place.mnt()]);
    assert!(output.status.code() == Some(2) && text(&output).contains("wibble=1"), "{output:?}");
    failed(zrfs(&["umount"], &[&place.mnt()]), "no zrfs mount");
    failed(zrfs(&["mount", "-o", "log=/nowhere/log"], &[&place.store(), &place.mnt()]), "/nowhere/log");
    assert!(!place.mounted());
    let inside = place.store().join("inside");
    fs::create_dir(&inside).unwrap();
    failed(zrfs(&["mount"], &[&place.store(), &inside]), "lies in the store");
    failed(zrfs(&["mount"], &[&place.store(), place.dir.path()]), "would hide the store");
    for _ in 0..5 {
        let output = zrfs(&["mount"], &[&place.store(), &place.mnt()]);
        assert_eq!(fs::read(place.record(0)).unwrap(), [1; 10]);
        let line = String::from_utf8(output.stdout).unwrap();
        assert!(line.contains("is mounted at") && line.lines().count() == 1, "{line}");
        failed(zrfs(&["mount"], &[&place.store(), &place.mnt()]), "mounted at");
        assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
        place.wait_for_end();
    }
}

/// > SIGTERM, SIGINT, `umount`, `fusermount3 -u` and `zrfs umount` end the daemon and leave nothing behind.
/// > A signal ends the daemon while files are open, too; their readers get an error.
/// > A mount point whose daemon was killed is taken over by the next mount.
#[test]
fn ends() {
    let place = Place::new();
    place.fill(&kinds());
    let run = |program: &str, args: &[&str]| {
        // Who is root unmounts with umount, others with fusermount3: both are tried where they are installed.
        let found = Command::new(program).args(args).arg(place.mnt()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    for end in 0..5 {
        place.mount(&[]);
        assert_eq!(place.daemons().len(), 1);
        match end {
            0 => place.signal("-TERM"),
            1 => place.signal("-INT"),
            2 => assert!(run("umount", &[]) || run("fusermount3", &["-u"])),
            3 => assert!(run("fusermount3", &["-u"]) || run("umount", &[])),
            _ => assert!(zrfs(&["umount"], &[&place.mnt()]).status.success()),
        }
        place.wait_for_end();
        assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 0);
    }
    place.mount(&[]);
    let file = File::open(place.record(19)).unwrap();
    let output = zrfs(&["umount"], &[&place.mnt()]);
    assert_eq!(output.status.code(), Some(1));
    let user = format!("process {} ", std::process::id());
    assert!(text(&output).contains(&user) && text(&output).contains("umount --lazy"), "{}", text(&output));
    place.signal("-TERM");
    place.wait_for_end();
    assert!(file.read_at(&mut [0; 100], 900_000).is_err());
    drop(file);

    place.mount(&[]);
    let file = File::open(place.record(19)).unwrap();
    // Known to the kernel, which would answer for the dead daemon.
    assert!(Command::new("stat").arg(place.mnt()).stdout(Stdio::null()).status().unwrap().success());
    place.mnt().metadata().unwrap();
    place.signal("-KILL");
    wait_for("the daemon is gone", || place.daemons().is_empty());
    assert!(fs::read_dir(place.mnt()).is_err());
    assert!(file.read_at(&mut [0; 100], 900_000).is_err());
    place.mount(&[]);
    assert!(fs::read(place.record(19)).unwrap() == kinds()[19]);
}

/// > A mount of something else over a zrfs mount is left alone when the daemon ends.
#[test]
fn another_mount_on_top_is_left_alone() {
    let (below, above) = (Place::new(), Place::new());
    below.fill(&[vec![1; 10]]);
    above.fill(&[vec![2; 20]]);
    below.mount(&[]);
    let pid = below.daemons()[0];
    assert!(zrfs(&["mount"], &[&above.store(), &below.mnt()]).status.success());
    assert_eq!(fs::read(below.record(0)).unwrap(), [2; 20]);
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
    wait_for("the lower daemon ends", || !below.daemons().contains(&pid));
    assert_eq!(fs::read(below.record(0)).unwrap(), [2; 20], "the upper mount serves on");
}
