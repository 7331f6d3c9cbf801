//! Calls as util-linux documents them, and what becomes of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that goes wrong should stop")]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use clap::{CommandFactory, Parser};

use crate::args::Call;
use crate::failure::Failure;
use crate::mount::{Mount, outcome};
use crate::program::places;

/// The exit status of a call that runs nothing, or what `zrfs` is run with.
#[derive(Debug, PartialEq)]
enum Becomes {
    Status(u8),
    Runs(Vec<OsString>),
}

fn status_of(failure: Failure) -> u8 {
    match failure {
        Failure::Says(status, text) => {
            assert!(!text.is_empty());
            status
        }
        Failure::Told(status) => status,
    }
}

fn becomes(args: &[&OsStr]) -> Becomes {
    let call = match Call::try_parse_from([OsStr::new("mount.zrfs")].iter().chain(args)) {
        Ok(call) => call,
        Err(e) => return Becomes::Status(u8::from(e.use_stderr())),
    };
    match Mount::of(&call) {
        Ok(mount) => Becomes::Runs(mount.arguments(&call)),
        Err(e) => Becomes::Status(status_of(e)),
    }
}

fn words(text: &str) -> Vec<&OsStr> {
    text.split('|').map(OsStr::new).collect()
}

/// A call, its words between `|`, and the words that `zrfs` gets behind `mount`.
const RUNS: [(&str, &str); 44] = [
    ("/s|/t", "--|/s|/t"),
    ("/s|/t|-o|rw", "-o|rw|--|/s|/t"),
    ("-o|rw|/s|/t", "-o|rw|--|/s|/t"),
    ("/s|-o|rw|/t", "-o|rw|--|/s|/t"),
    ("/s|/t|-orw", "-o|rw|--|/s|/t"),
    ("/s|/t|-o=rw", "-o|rw|--|/s|/t"),
    ("/s|/t|-o|", "--|/s|/t"),
    ("/s|/t|-o||-o|ro", "-o|ro|--|/s|/t"),
    ("/s|/t|-o|ro|-o|seed=7,ext=jpg", "-o|ro|-o|seed=7,ext=jpg|--|/s|/t"),
    ("-o|ro|/s|-o|seed=7|/t|-o|ext=jpg", "-o|ro|-o|seed=7|-o|ext=jpg|--|/s|/t"),
    ("/s|/t|-s", "--|/s|/t"),
    ("/s|/t|-f", "--|/s|/t"),
    ("/s|/t|-n", "--|/s|/t"),
    ("/s|/t|-v", "--|/s|/t"),
    ("/s|/t|-sfnv", "--|/s|/t"),
    ("-vnfs|/s|/t", "--|/s|/t"),
    ("-s|-f|-n|-v|/s|/t|-o|rw|-t|zrfs", "-o|rw|--|/s|/t"),
    ("/s|/t|-s|-f|-n|-v|-o|rw|-N|/proc/7/fd/4|-t|fuse.zrfs", "-o|rw|--|/s|/t"),
    ("-t|fuse.zrfs|-N|7|-o|rw|-v|/s|-n|/t", "-o|rw|--|/s|/t"),
    ("/s|/t|-v|-v|-n|-n", "--|/s|/t"),
    ("/s|/t|-svo|rw", "-o|rw|--|/s|/t"),
    ("/s|/t|-N|/proc/self/ns/mnt", "--|/s|/t"),
    ("/s|/t|-t|zrfs", "--|/s|/t"),
    ("/s|/t|-t|fuse.zrfs", "--|/s|/t"),
    ("/s|/t|-t|fuse", "--|/s|/t"),
    ("/s|/t|-tzrfs", "--|/s|/t"),
    ("/s|/t|-t|zrfs|-t|fuse.zrfs", "--|/s|/t"),
    ("-o|rw|--|/s|/t", "-o|rw|--|/s|/t"),
    ("--|-s|-t", "--|-s|-t"),
    ("s.zr|mnt", "--|s.zr|mnt"),
    ("/a b,c\"d'|/t\n\\", "--|/a b,c\"d'|/t\n\\"),
    ("/s|/t|-o|rw,dev,suid", "-o|rw,dev,suid|--|/s|/t"),
    (
        "/s|/t|-o|ro,noexec,nosuid,nodev,nofail,_netdev,user",
        "-o|ro,noexec,nosuid,nodev,nofail,_netdev,user|--|/s|/t",
    ),
    (
        "/s|/t|-o|rw,async,relatime,user=joe,x-a=b,comment=c",
        "-o|rw,async,relatime,user=joe,x-a=b,comment=c|--|/s|/t",
    ),
    ("/s|/t|-o|rw,context=\"a:b:c,d\",seclabel", "-o|rw,context=\"a:b:c,d\",seclabel|--|/s|/t"),
    ("/s|/t|-o|labels=\"/a,b.zr\",ro", "-o|labels=\"/a,b.zr\",ro|--|/s|/t"),
    ("/s|/t|-o|labels=/a\\,b.zr,ro", "-o|labels=/a\\,b.zr,ro|--|/s|/t"),
    ("/s|/t|-o|rw,helper=a,uhelper=b", "-o|rw,helper=a,uhelper=b|--|/s|/t"),
    ("/s|/t|-s|-o|rw,wibble,seed=7,wobble=\"a,b\"", "-o|rw,seed=7|--|/s|/t"),
    ("/s|/t|-o|wibble|-s", "--|/s|/t"),
    ("/s|/t|-s|-o|wibble,labels=\"/a,b\"|-o|wobble|-o|ro", "-o|labels=\"/a,b\"|-o|ro|--|/s|/t"),
    ("/s|/t|-s|-o|ro,labels=/a\\,b", "-o|ro,labels=/a\\,b|--|/s|/t"),
    ("/s|/t|-f|-v|-o|ro", "-o|ro|--|/s|/t"),
    ("/s|/t|-o|ro,,rw,", "-o|ro,,rw,|--|/s|/t"),
];

/// A call and its exit status.
const ENDS: [(&str, u8); 31] = [
    ("--help", 0),
    ("-h", 0),
    ("--version", 0),
    ("-V", 0),
    ("/s|/t|--help", 0),
    ("", 1),
    ("/s", 1),
    ("/s|/t|/u", 1),
    ("-o|rw|/s", 1),
    ("/s|/t|-o", 1),
    ("/s|/t|-N", 1),
    ("/s|/t|-t", 1),
    ("/s|/t|-x", 1),
    ("/s|/t|--fake", 1),
    ("/s|/t|-t|ext4", 1),
    ("/s|/t|-t|fuse.sshfs", 1),
    ("/s|/t|-t|", 1),
    ("/s|/t|-o|wibble", 1),
    ("/s|/t|-o|ro,wibble=1,seed=7", 1),
    ("/s|/t|-o|seed=x", 1),
    ("/s|/t|-s|-o|seed=x", 1),
    ("/s|/t|-s|-o|seed", 1),
    ("/s|/t|-o|labels=\"/a,ro", 1),
    ("/s|/t|-o|dataonly,idle=5", 1),
    ("/s|/t|-s|-o|dataonly|-o|idle=5", 1),
    ("/s|/t|-o|allow_other|-o|allow_root", 1),
    ("/s|/t|-o|bind", 1),
    ("/s|/dev/fd/3|-o|rw,dev,suid", 1),
    ("/s|/t|-o|remount,ro", 32),
    ("/s|/t|-f|-o|rw,user_id=0,group_id=0|-o|ro,remount", 1),
    ("/s|/t|-s|-f|-o|rw,user_id=0,group_id=0,remount", 32),
];

#[test]
fn calls_become_calls_of_zrfs() {
    for (call, runs) in RUNS {
        let expected = std::iter::once("mount").chain(runs.split('|')).map(OsString::from).collect();
        assert_eq!(becomes(&words(call)), Becomes::Runs(expected), "{call}");
    }
}

#[test]
fn calls_that_run_nothing_have_their_status() {
    for (call, status) in ENDS {
        let call_words = if call.is_empty() { Vec::new() } else { words(call) };
        assert_eq!(becomes(&call_words), Becomes::Status(status), "{call}");
    }
}

#[test]
fn paths_need_not_be_text() {
    let [source, target] = [&b"/\xff\xfe s"[..], b"/t\xe9"].map(OsStr::from_bytes);
    let runs = [OsStr::new("mount"), OsStr::new("--"), source, target].map(OsString::from);
    assert_eq!(becomes(&[source, target]), Becomes::Runs(runs.to_vec()));
    let options = OsStr::from_bytes(b"labels=/\xff");
    assert_eq!(becomes(&[source, target, OsStr::new("-o"), options]), Becomes::Status(1));
}

#[test]
fn what_is_left_out_is_known() {
    let call = Call::try_parse_from(["", "/s", "/t", "-s", "-o", "rw,wibble", "-o", "wobble=1"]).unwrap();
    assert_eq!(Mount::of(&call).unwrap().left_out, ["wibble", "wobble=1"]);
}

#[test]
fn a_wrong_type_and_a_wrong_option_are_named() {
    let e = Call::try_parse_from(["", "/s", "/t", "-t", "ext4"]).map(drop).unwrap_err().to_string();
    assert!(e.contains("ext4") && e.contains("fuse.zrfs"), "{e}");
    let call = Call::try_parse_from(["", "/s", "/t", "-o", "ro,bach_size=3"]).unwrap();
    match Mount::of(&call).map(drop) {
        Err(Failure::Says(1, text)) => {
            assert!(text.contains("/t: mount option bach_size=3") && text.contains("batch_size?"), "{text}");
        }
        _ => panic!("a bad option was taken"),
    }
}

#[test]
fn zrfs_outcomes_are_what_mount_counts() {
    let exited = |code: i32| outcome(ExitStatus::from_raw(code << 8)).map_err(status_of);
    assert_eq!([0, 1, 2, 3, 101].map(exited), [Ok(()), Err(32), Err(1), Err(32), Err(32)]);
    assert_eq!(outcome(ExitStatus::from_raw(9)).map_err(status_of), Err(32));
}

#[test]
fn zrfs_is_looked_for_beside_the_program_and_in_bin() {
    let at = |own: &str| places(None, Some(Path::new(own))).unwrap();
    let fixed = ["/usr/local/bin/zrfs", "/usr/bin/zrfs"].map(PathBuf::from);
    let built = option_env!("ZRFS_PROGRAM").map(PathBuf::from);
    assert_eq!(at("/home/a/zrfs/bin/mount.zrfs")[0], Path::new("/home/a/zrfs/bin/zrfs"));
    assert_eq!(at("/usr/sbin/mount.zrfs")[..2], ["/usr/sbin/zrfs", "/usr/bin/zrfs"].map(PathBuf::from));
    assert_eq!(at("/opt/mount.zrfs")[2..], built.into_iter().chain(fixed).collect::<Vec<_>>());
    let named = |path: &str| places(Some(path.into()), Some(Path::new("/usr/sbin/mount.zrfs")));
    assert_eq!(named("/opt/z").unwrap(), [Path::new("/opt/z")]);
    for relative in ["zrfs", "./zrfs"] {
        assert_eq!(named(relative).map_err(status_of), Err(2), "{relative}");
    }
    assert_eq!(named("").unwrap(), at("/usr/sbin/mount.zrfs"), "an empty variable names nothing");
}

#[test]
fn the_arguments_are_sound() {
    Call::command().debug_assert();
}
