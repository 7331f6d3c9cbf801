//! A private folder with a store and a mount, and what is done with it from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use zrfs::{Codec, Store, Version};

const ZRFS: &str = env!("CARGO_BIN_EXE_zrfs");

/// Waits until `done` holds; fails the test after a while.
#[track_caller]
pub(super) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn zrfs(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(ZRFS).args(args).args(paths).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
pub(super) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A private folder with a store and a mount point; unmounts when dropped, also when the test has failed.
pub(super) struct Place {
    pub(super) dir: tempfile::TempDir,
}

impl Place {
    pub(super) fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.mnt()).unwrap();
        place
    }

    pub(super) fn store(&self) -> PathBuf {
        self.dir.path().join("s.zr")
    }

    pub(super) fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub(super) fn record(&self, index: usize) -> PathBuf {
        self.mnt().join(format!("records/{index:08}.bin"))
    }

    /// Writes records of any lengths, deflated where that pays.
    pub(super) fn fill(&self, records: &[Vec<u8>]) {
        let store = Store::create(self.store(), Version::V2).unwrap();
        for (i, record) in records.iter().enumerate() {
            let codec = if i % 2 == 0 { Codec::default() } else { Codec::Raw };
            store.append_ragged(record, &[0], &[u32::try_from(record.len()).unwrap()], codec).unwrap();
        }
        store.sync().unwrap();
    }

    #[track_caller]
    pub(super) fn mount(&self, options: &[&str]) {
        let mut args = vec!["mount"];
        for option in options {
            args.extend(["-o", option]);
        }
        let output = zrfs(&args, &[&self.store(), &self.mnt()]);
        assert!(output.status.success(), "{}", text(&output));
    }

    pub(super) fn mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&format!(" {} ", self.mnt().display()))
    }

    /// The daemons that serve this place's mount point.
    pub(super) fn daemons(&self) -> Vec<i32> {
        let mnt = self.mnt().into_os_string().into_encoded_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
            let args = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mut args = args.split(|&b| b == 0);
            if args.next().is_some_and(|program| program.ends_with(b"zrfs")) && args.any(|arg| arg == mnt) {
                found.push(pid);
            }
        }
        found
    }

    #[track_caller]
    pub(super) fn wait_for_end(&self) {
        wait_for("the mount goes", || !self.mounted());
        wait_for("the daemon ends", || self.daemons().is_empty());
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.daemons()[0].to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while self.mounted() {
            // Lazily, since a failed test may have files open.
            let way = ["umount", "fusermount3"].map(|program| {
                let flags: &[&str] = if program == "umount" { &["-l"] } else { &["-u", "-z"] };
                let way = Command::new(program).args(flags).arg(self.mnt()).stderr(Stdio::null()).status();
                way.is_ok_and(|status| status.success())
            });
            if way == [false, false] {
                return;
            }
        }
    }
}
