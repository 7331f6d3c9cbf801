//! What `-o` changes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{fgetxattr, getxattr, getxattr_query, listxattr, listxattr_query};
use rustix::io::Errno;

use super::kinds;
use super::place::{Place, text, wait_for, zrfs};
use zrfs::Store;

const NAMES: [&str; 3] = ["user.zrfs.index", "user.zrfs.codec", "user.zrfs.stored_size"];

fn list(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn delete(place: &Place, records: &str) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(place.mnt().join("delete"))?;
    file.write_all(records.as_bytes())
}

/// > `-o xattr` gives records the extended attributes user.zrfs.index, user.zrfs.codec (raw or flate) and user.zrfs.stored_size, under both of their names, and other files none.
/// > Without `-o xattr` no file has extended attributes, and nobody is asked for them.
/// > The index that an extended attribute tells is the one that the record has now, after a delete as well.
#[test]
fn extended_attributes() {
    let get = |path: &Path, name: &str| {
        let mut value = [0; 64];
        getxattr(path, name, &mut value[..]).map(|n| String::from_utf8(value[..n].to_vec()).unwrap())
    };
    let place = Place::new();
    let source = place.dir.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for (i, record) in kinds().iter().enumerate() {
        fs::write(source.join(format!("sub/{i:02}")), record).unwrap();
    }
    std::os::unix::fs::symlink("sub", source.join("link")).unwrap();
    assert!(zrfs(&["import", "--links", "keep"], &[&source, &place.store()]).status.success());
    let count = kinds().len();

    place.mount(&[]);
    assert_eq!(get(&place.record(0), NAMES[0]), Err(Errno::NOTSUP));
    assert_eq!(listxattr(place.record(0), &mut [0u8; 64][..]), Err(Errno::NOTSUP));
    assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
    place.wait_for_end();

    place.mount(&["xattr"]);
    let store = Store::open_read_only(place.store()).unwrap();
    for i in 0..count {
        let loc = store.location(i as u64).unwrap();
        for path in [place.record(i), place.mnt().join(format!("tree/sub/{i:02}"))] {
            let told = NAMES.map(|name| get(&path, name).unwrap());
            assert_eq!(told, [i.to_string(), loc.compress.name().into(), loc.phys_length.to_string()]);
        }
    }
    drop(store);
    let mut names = [0u8; 256];
    let n = listxattr(place.record(3), &mut names[..]).unwrap();
    assert_eq!(names[..n], *NAMES.map(|name| format!("{name}\0")).concat().as_bytes());
    // How long they are, and too little room.
    assert_eq!(listxattr_query(place.record(3)), Ok(n));
    assert_eq!(listxattr(place.record(3), &mut [0u8; 20][..]), Err(Errno::RANGE));
    assert_eq!(getxattr_query(place.record(13), NAMES[0]), Ok(2));
    assert_eq!(getxattr(place.record(13), NAMES[0], &mut [0u8; 1][..]), Err(Errno::RANGE));
    assert_eq!(get(&place.record(3), "user.zrfs.inde"), Err(Errno::NODATA));
    assert_eq!(get(&place.record(3), "security.capability"), Err(Errno::NODATA));
    for other in ["", "records", "tree", "tree/sub", "stats", "README", "delete", "compact", "batches"] {
        let other = place.mnt().join(other);
        assert_eq!(listxattr(&other, &mut [0u8; 64][..]), Ok(0), "{}", other.display());
        assert_eq!(get(&other, NAMES[0]), Err(Errno::NODATA), "{}", other.display());
    }

    let last = File::open(place.record(count - 1)).unwrap();
    let mut value = [0; 8];
    assert_eq!(fgetxattr(&last, NAMES[0], &mut value[..]), Ok(2));
    assert_eq!(value[..2], *(count - 1).to_string().as_bytes());
    delete(&place, "4\n").unwrap();
    assert_eq!(fgetxattr(&last, NAMES[0], &mut value[..]), Ok(1));
    assert_eq!(&value[..1], b"4");
    assert_eq!(get(&place.record(4), NAMES[0]).unwrap(), "4");
}

/// > `-o dataonly` shows the data, stats and README: no control files and no endless ones, listed or not.
/// > With `-o dataonly` the kernel opens files by itself: what it has in memory is read without a word to the daemon.
/// > With `-o dataonly` the mount is read-only; records that are appended show up all the same, in stats, too, which has no counters.
#[test]
fn data_only() {
    let place = Place::new();
    let records = kinds();
    place.fill(&records);
    place.mount(&["dataonly"]);
    let hidden = ["delete", "compact", "batch", "batch.npy", "batch.label.npy", "batch.tar"];
    for name in hidden {
        assert!(!list(&place.mnt()).contains(&name.to_owned()), "{name}");
        let e = fs::metadata(place.mnt().join(name)).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ENOENT), "{name}");
    }
    for name in ["records", "stats", "README", "batches"] {
        assert!(list(&place.mnt()).contains(&name.to_owned()), "{name}");
    }
    for (i, record) in records.iter().enumerate() {
        assert!(&fs::read(place.record(i)).unwrap() == record, "record {i}");
    }
    let stats = || -> serde_json::Value {
        let text = fs::read_to_string(place.mnt().join("stats")).unwrap();
        assert_eq!(text.len() as u64, place.mnt().join("stats").metadata().unwrap().len());
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!((stats()["records"].as_u64(), stats().get("counters")), (Some(records.len() as u64), None));
    let readme = fs::read(place.mnt().join("README")).unwrap();
    assert_eq!(readme.len() as u64, place.mnt().join("README").metadata().unwrap().len());

    // A daemon that is stopped answers nothing.
    place.signal("-STOP");
    let mut reader = Command::new("cat").arg(place.record(6)).stdout(Stdio::piped()).spawn().unwrap();
    let begin = std::time::Instant::now();
    while reader.try_wait().unwrap().is_none() && begin.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    let ended = reader.try_wait().unwrap();
    place.signal("-CONT");
    assert!(reader.wait_with_output().unwrap().stdout == records[6]);
    assert!(ended.is_some(), "the kernel asked the daemon");

    let e = File::options().write(true).open(place.record(0)).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EROFS));
    let store = Store::open(place.store()).unwrap();
    store.append(&[2; 30], 10, zrfs::Codec::Raw).unwrap();
    store.sync().unwrap();
    let count = records.len() + 3;
    assert_eq!(fs::read(place.record(count - 1)).unwrap(), [2; 10]);
    wait_for("stats shows them", || stats()["records"] == count);
    wait_for("the listing shows them", || list(&place.mnt().join("records")).len() == count);
}

/// > Files of batches/ and array.npy have the same bytes with `-o dataonly` as without.
#[test]
fn data_only_batches() {
    let place = Place::new();
    let store = Store::create(place.store(), zrfs::Version::V1).unwrap();
    zrfs::dataset::Schema::new("<i4", &[300], zrfs::Codec::default()).unwrap().write(&store).unwrap();
    let bytes: Vec<u8> = (0..3000 * 300u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
    store.append(&bytes, 1200, zrfs::Codec::default()).unwrap();
    store.sync().unwrap();
    drop(store);
    let names: Vec<String> = (0..20)
        .flat_map(|step| ["npy", "tar", "index.npy"].map(|ext| format!("batches/{step}.{ext}")))
        .chain(["array.npy".to_owned()])
        .collect();
    let read =
        || -> Vec<Vec<u8>> { names.iter().map(|name| fs::read(place.mnt().join(name)).unwrap()).collect() };
    place.mount(&[]);
    let expected = read();
    assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
    place.wait_for_end();
    place.mount(&["dataonly"]);
    assert!(read() == expected);
    assert!(expected.iter().all(|file| file.len() > 1000));
}

/// > In a mount with `-o ro`, or of a store that can't be written, delete and compact refuse with EROFS, too.
#[test]
fn read_only() {
    let place = Place::new();
    place.fill(&kinds());
    place.mount(&["ro"]);
    for name in ["delete", "compact"] {
        let path = place.mnt().join(name);
        assert!(fs::read_to_string(&path).unwrap().starts_with('{'), "{name}");
        let e = File::options().write(true).open(&path).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EROFS), "{name}");
        let mnt = place.mnt();
        let paths: &[&Path] = if name == "delete" { &[&mnt, Path::new("0")] } else { &[&mnt] };
        let output = zrfs(&[name], paths);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output).contains("read-only"), "{}", text(&output));
    }
    assert_eq!(fs::read(place.record(2)).unwrap(), kinds()[2]);
}

/// > Control files can be written by the mount's owner, whom `-o uid=` names, and by root; others can't open them for writing, under `-o allow_other` neither.
#[test]
fn who_may_change() {
    let place = Place::new();
    place.fill(&[vec![1; 10], vec![2; 10], vec![3; 10]]);
    let owner = |name: &str| {
        let meta = place.mnt().join(name).metadata().unwrap();
        (meta.uid(), meta.permissions().mode() & 0o7777)
    };
    let me = rustix::process::getuid().as_raw();
    place.mount(&["umask=022"]);
    assert_eq!((owner("delete"), owner("compact")), ((me, 0o644), (me, 0o644)));
    assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
    place.wait_for_end();
    // Only root can be somebody else, and may allow others without a setting of the system.
    if me != 0 {
        return;
    }
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place.mount(&["allow_other,uid=12345"]);
    let delete_as = |user: u32| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo 0 > \"$0\""]).arg(place.mnt().join("delete"));
        shell.uid(user).gid(user).stderr(Stdio::null()).status().unwrap().success()
    };
    let records = || list(&place.mnt().join("records")).len();
    assert_eq!((delete_as(54321), records()), (false, 3));
    assert_eq!((delete_as(12345), records()), (true, 2));
    assert_eq!((delete_as(0), records()), (true, 1));
}

/// > `-o idle=SECONDS` ends a mount that nobody has used for so long; an open file, a mapping and a working folder in it are use.
/// > `-o log=FILE` says with the time what is mounted, each warning, and why the mount ended.
#[test]
fn unused() {
    let mounted = || {
        let place = Place::new();
        place.fill(&[vec![1; 10]]);
        place.mount(&[&format!("idle=1,log={}", place.dir.path().join("log").display())]);
        place
    };
    let [opened, mapped, entered] = [(); 3].map(|()| mounted());
    let file = File::open(opened.record(0)).unwrap();
    let map = "import mmap, sys\nf = open(sys.argv[1], 'rb')\nm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\nf.close()\nprint(m[0], flush=True)\nsys.stdin.read()";
    let mut mapping = Command::new("python3")
        .args(["-c", map])
        .arg(mapped.record(0))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    mapping.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    let mut inside = Command::new("cat").current_dir(entered.mnt()).stdin(Stdio::piped()).spawn().unwrap();
    // It was mounted last, so the others have been found in use when it ends.
    let unused = mounted();
    unused.wait_for_end();
    for (place, use_) in [(&opened, "an open file"), (&mapped, "a mapping"), (&entered, "a working folder")] {
        assert!(place.mounted(), "{use_}");
    }
    drop(file);
    drop((mapping.stdin.take(), inside.stdin.take()));
    assert!(mapping.wait().unwrap().success() && inside.wait().unwrap().success());
    for place in [&opened, &mapped, &entered] {
        place.wait_for_end();
    }
    let said = fs::read_to_string(unused.dir.path().join("log")).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("is mounted at") && lines[0].contains("1 records"), "{said}");
    assert!(lines.last().unwrap().contains("unused for 1 s: unmounted"), "{said}");
    let year: String = lines[0].chars().filter(char::is_ascii_digit).take(4).collect();
    assert!((2020..2100).contains(&year.parse::<u32>().unwrap()), "{said}");
}
