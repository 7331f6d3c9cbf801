//! Archives made by hand, of members that the `tar` crate would not write.

use std::path::PathBuf;

use super::*;

/// An archive in a file.
struct Made {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Made {
    fn new() -> Made {
        Made { dir: tempfile::tempdir().unwrap(), bytes: Vec::new() }
    }

    /// A member whose header `change` had in its hands.
    fn member(
        &mut self,
        kind: u8,
        name: &[u8],
        contents: &[u8],
        change: impl FnOnce(&mut tar::Header),
    ) -> &mut Made {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::new(kind));
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(7);
        change(&mut header);
        header.set_cksum();
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(contents);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    fn file(&mut self, name: &str, contents: &[u8]) -> &mut Made {
        self.member(b'0', name.as_bytes(), contents, |_| {})
    }

    fn link(&mut self, kind: u8, name: &str, target: &str) -> &mut Made {
        self.member(kind, name.as_bytes(), b"", |header| {
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        })
    }

    fn pax(&mut self, key: &str, value: &[u8]) -> &mut Made {
        let rest = key.len() + value.len() + 3;
        let len =
            (1..9).map(|digits| rest + digits).find(|len| len.to_string().len() + rest == *len).unwrap();
        self.member(b'x', b"pax", &[format!("{len} {key}=").as_bytes(), value, b"\n"].concat(), |_| {})
    }

    fn end(&mut self) -> &mut Made {
        self.bytes.extend([0; 1024]);
        self
    }

    fn source(&self) -> Source {
        let path = self.dir.path().join("x.tar");
        std::fs::write(&path, &self.bytes).unwrap();
        Source::File(path)
    }

    /// Looks through the archive as an import does.
    fn looked_at(&self, keep_links: bool) -> Result<(Files, Vec<u32>, Vec<String>)> {
        let (mut files, mut notes) = (Files::new(), Vec::new());
        let choice = Choice { only: None, keep_links };
        look_at(&self.source(), choice, &mut files, &mut notes, &Stop::default())?;
        files.settle();
        let copies = match files.origins().next() {
            Some((_, Origin::Archive(_, copies))) => copies.clone(),
            other => panic!("{other:?}"),
        };
        Ok((files, copies, notes))
    }

    /// The members with their contents, as they are stored.
    fn members(&self) -> Result<Vec<(Member, Vec<u8>)>> {
        let mut members = Members::of(Input::open(&self.source(), false, &Stop::default())?);
        let mut all = Vec::new();
        while let Some(member) = members.next()? {
            let mut contents = Vec::new();
            members.read(member.size, &mut contents)?;
            all.push((member, contents));
        }
        Ok(all)
    }

    fn refused(&self, words: &[&str]) {
        let e = self.looked_at(false).map(|(files, ..)| files).unwrap_err().to_string();
        assert!(e.contains("x.tar") && words.iter().all(|word| e.contains(word)), "{words:?}: {e}");
    }
}

fn paths(files: &Files) -> Vec<String> {
    (0..files.len()).map(|i| String::from_utf8_lossy(&files.names().path(i)).into_owned()).collect()
}

#[test]
fn records_come_in_the_archives_order_and_links_behind_them() {
    let mut made = Made::new();
    made.member(b'5', b"./", b"", |header| header.set_mtime(9))
        .link(b'1', "hard", "./b/2")
        .link(b'2', "b/chain", "../soft")
        .link(b'2', "soft", "b/../b/2")
        .member(b'0', b"./b/2", b"two", |header| header.set_mode(0o755))
        .file("a", b"")
        .member(b'5', b"empty/", b"", |header| header.set_mtime(11))
        .member(b'3', b"device", b"", |_| {})
        .member(b'Z', b"odd", b"contents", |_| {})
        .member(b'g', b"pax", b"6 a=b\n", |_| {})
        .end();
    let (files, copies, notes) = made.looked_at(false).unwrap();
    assert_eq!(paths(&files), ["b/2", "a", "hard", "b/chain", "soft"]);
    assert_eq!(copies, [0, 0, 0]);
    assert_eq!(files.sizes(), [3, 0, 3, 3, 3]);
    let executable: Vec<_> = (0..5).map(|i| files.names().executable(i)).collect();
    // A hard link has what its own header says, a link what is behind it.
    assert_eq!(executable, [true, false, false, true, true]);
    let folders: Vec<_> = files.names().folders().map(|id| files.names().folder_path(id)).collect();
    assert_eq!(folders, [&b""[..], b"b", b"empty"]);
    assert_eq!(notes.len(), 2, "{notes:?}");
    // Kept links are no records.
    let (files, copies, _) = made.looked_at(true).unwrap();
    assert_eq!((paths(&files), copies), (vec!["b/2".into(), "a".into(), "hard".into()], vec![0]));
}

#[test]
fn links_that_lead_to_no_file_are_refused_by_name() {
    for (kind, target, words) in [
        (b'2', "/etc/passwd", &["l -> /etc/passwd", "leads out"][..]),
        (b'2', "../x", &["l -> ../x", "leads out"]),
        (b'2', "a/../../x", &["leads out"]),
        (b'2', "gone", &["l -> gone", "no file", "--links keep"]),
        (b'2', "d", &["l -> d", "folder", "--links keep"]),
        (b'2', ".", &["folder"]),
        (b'2', "l", &["l -> l", "circles"]),
        (b'2', "m", &["circles"]),
        (b'1', "gone", &["hard link", "l -> gone", "no file"]),
        (b'1', "l", &["circles"]),
    ] {
        let mut made = Made::new();
        made.file("d/x", b"x").link(kind, "l", target).link(b'2', "m", "l").end().refused(words);
    }
    for target in ["/etc/passwd", "../x", ""] {
        let mut made = Made::new();
        made.link(b'2', "l", target).end();
        assert!(made.looked_at(true).is_err(), "{target}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let long = [b'x'; 256];
    for (name, words) in [
        (&b"/etc/x"[..], &["/etc/x", "absolute"][..]),
        (b"./../x", &["../x", "another folder"]),
        (b"a/../../x", &["another folder"]),
        (b"..", &["another folder"]),
        (b".", &["another folder"]),
        (b"./", &["without a name"]),
        (b"a//x", &["empty"]),
        (b"a/./x", &["another folder"]),
        (b"", &["without a name", "empty"]),
        (b"a\0b", &["NUL"]),
        (&long, &["255"]),
        (&[&long[..], b"/a"].concat(), &["255"]),
        (&b"a/".repeat(3000), &["4096"]),
    ] {
        for kind in [b'0', b'1', b'2', b'5'] {
            // The folder of all; an old archive has folders as files whose names end with a slash.
            if kind == b'5' && name == b"." || matches!(kind, b'0' | b'5') && name == b"./" {
                continue;
            }
            let mut made = Made::new();
            made.file("f", b"f");
            // An empty pax path is none: then the header's is read.
            if !name.is_empty() {
                made.pax("path", name);
            }
            // A folder's name may end with a slash, and a long one is in its own path then.
            let target: &[u8] = if matches!(kind, b'1' | b'2') { b"f" } else { b"" };
            made.member(kind, b"", b"", |header| {
                header.as_old_mut().linkname[..target.len()].copy_from_slice(target);
            });
            let words = if kind == b'5' && name.ends_with(b"a/") { &["4096"][..] } else { words };
            made.end().refused(words);
        }
    }
}

#[test]
fn names_and_times_may_come_from_other_headers() {
    let mut made = Made::new();
    let long = "x".repeat(200);
    made.member(b'L', b"././@LongLink", format!("d/{long}\0").as_bytes(), |_| {})
        .file("short", b"1")
        .pax("path", b"a\nb\xff")
        .file("ignored", b"2")
        .pax("mtime", b"-1.5")
        .member(b'0', b"name", b"3", |header| {
            header.as_ustar_mut().unwrap().prefix[..6].copy_from_slice(b"prefix");
        })
        .member(b'7', b"contiguous", b"4", |_| {})
        .member(b'\0', b"old", b"5", |_| {})
        .member(b'\0', b"old-folder/", b"", |_| {})
        .end();
    let (files, ..) = made.looked_at(false).unwrap();
    assert_eq!(paths(&files), [&format!("d/{long}"), "a\nb\u{fffd}", "prefix/name", "contiguous", "old"]);
    let times: Vec<_> = (0..3).map(|i| files.names().modified_ns(i)).collect();
    assert_eq!(times, [7_000_000_000, 7_000_000_000, -1_500_000_000]);
    assert_eq!(files.names().folders().count(), 4);
}

#[test]
fn sparse_files_are_read_whole() {
    let mut expected = vec![0; 10_000];
    expected[4096..4099].copy_from_slice(b"abc");
    expected[8192..8193].copy_from_slice(b"d");
    let data = [&b"abc"[..], &[0; 509], b"d"].concat();
    let map = b"3\n4096\n3\n8192\n1\n10000\n0\n";
    let mut made = Made::new();
    let mut contents = map.to_vec();
    contents.resize(512, 0);
    contents.extend(b"abcd");
    let mut header = Vec::new();
    for (key, value) in [("major", "1"), ("minor", "0"), ("name", "d/real"), ("realsize", "10000")] {
        header.extend(format!("{} GNU.sparse.{key}={value}\n", key.len() + value.len() + 16).bytes());
    }
    made.member(b'x', b"pax", &header, |_| {})
        .file("GNUSparseFile.1/real", &contents)
        .file("next", b"n")
        .end();
    let members = made.members().unwrap();
    assert_eq!((&members[0].0.path[..], members[0].0.size), (&b"d/real"[..], 10_000));
    assert!(members[0].1 == expected);
    assert_eq!((&members[1].0.path[..], &members[1].1[..]), (&b"next"[..], &b"n"[..]));
    // GNU's own format keeps the stretches in the header.
    let mut made = Made::new();
    let mut gnu = tar::Header::new_gnu();
    gnu.set_entry_type(tar::EntryType::GNUSparse);
    gnu.as_old_mut().name[..1].copy_from_slice(b"s");
    gnu.set_size(513);
    let fields = gnu.as_gnu_mut().unwrap();
    fields.set_real_size(10_000);
    for (slot, (at, len)) in fields.sparse.iter_mut().zip([(4096, 512), (8192, 1), (10_000, 0)]) {
        slot.set_offset(at);
        slot.set_length(len);
    }
    gnu.set_cksum();
    made.bytes.extend(gnu.as_bytes());
    made.bytes.extend(&data);
    made.bytes.resize(512 * 3, 0);
    made.file("next", b"n").end();
    let members = made.members().unwrap();
    assert!(members[0].1 == expected);
    assert_eq!(&members[1].1[..], b"n");
}

#[test]
fn maps_that_lie_are_refused() {
    for map in [
        &b"1\n0\n5\n"[..],
        b"1\n5\n4\n",
        b"2\n2\n2\n1\n2\n",
        b"1\n18446744073709551615\n4\n",
        b"99999999999999999999\n",
        b"x\n",
        b"1\n0",
        b"1\n0\n4",
    ] {
        let mut made = Made::new();
        let mut contents = map.to_vec();
        contents.resize(512, 0);
        contents.extend(b"abcd");
        let header = b"22 GNU.sparse.major=1\n25 GNU.sparse.realsize=8\n";
        made.member(b'x', b"pax", header, |_| {}).file("s", &contents).end().refused(&["damaged", "map"]);
    }
}

#[test]
fn cut_archives_are_refused_wherever_they_are_cut() {
    let mut made = Made::new();
    made.pax("path", b"long").file("x", &[1; 700]).file("y", b"y").end();
    let whole = made.bytes.clone();
    let zeros = whole.len() - 1024;
    for cut in (0..zeros + 512).step_by(100).chain([zeros, zeros + 511]) {
        made.bytes = whole[..cut].to_vec();
        let e = made.looked_at(false).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged, "{cut}: {e}");
        assert!(e.to_string().contains("x.tar"), "{e}");
    }
    // One block of zeros is enough.
    made.bytes = whole[..zeros + 512].to_vec();
    made.looked_at(false).unwrap();
    made.bytes = [&whole[..], &whole[..]].concat();
    made.refused(&["goes on behind its end"]);
}

#[test]
fn flipped_bits_end_in_an_error_or_in_another_archive() {
    let mut made = Made::new();
    made.pax("path", b"long").file("x", b"x").link(b'1', "y", "long").end();
    let whole = made.bytes.clone();
    for bit in (0..whole.len() * 8).step_by(13) {
        made.bytes.clone_from(&whole);
        made.bytes[bit / 8] ^= 1 << (bit % 8);
        let _ = made.looked_at(false);
    }
}

#[test]
fn sizes_are_not_believed() {
    for kind in [b'0', b'L', b'x', b'g', b'Z'] {
        let mut made = Made::new();
        made.member(kind, b"big", b"", |header| header.set_size(1 << 62)).file("x", b"x").end();
        let e = made.looked_at(false).map(|(files, ..)| files).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
    }
    // A terabyte that is there only by its hole.
    let header = b"19 GNU.sparse.map=\n37 GNU.sparse.realsize=1099511627776\n";
    let mut made = Made::new();
    made.member(b'x', b"pax", header, |_| {}).file("s", b"").end();
    let (files, ..) = made.looked_at(false).unwrap();
    assert_eq!(files.too_large().len(), 1);
}

#[test]
fn what_is_no_archive_is_told_apart() {
    let mut made = Made::new();
    made.bytes = b"just text".repeat(100);
    made.refused(&["no tar archive"]);
    made.bytes = [&b"\x28\xb5\x2f\xfd"[..], &[1; 600]].concat();
    made.refused(&["no tar archive", "zstd -dc"]);
    for (path, is_one) in
        [("-", true), ("a.TAR", true), ("d/a.tar.gz", true), ("a.tgz", true), ("a.gz", false), ("tar", false)]
    {
        assert_eq!(Source::of(&PathBuf::from(path)).is_some(), is_one, "{path}");
    }
}
