//! `--links keep`: which symbolic links stay links.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The target of the link at `link`, a path below `root`, where it can stay a link: it leads from there to the same place
/// in the tree wherever the tree is. `expanded` says whether it lies behind a link that was followed.
///
/// That is so where the target is relative, stays inside the tree component by component, and the system gets to the
/// same file that way, or to nothing: `..` behind a link leads elsewhere than it reads. A link that leads to nothing
/// behind one that was followed is not kept, since its surroundings are not the ones that it was made for.
///
/// # Errors
/// The system's, from looking at the link itself.
pub(super) fn kept(root: &Path, link: &Path, expanded: bool) -> io::Result<Option<OsString>> {
    let here = root.join(link);
    let target = std::fs::read_link(&here)?.into_os_string();
    let Some(inside) = place_in_tree(link, &target) else { return Ok(None) };
    let kept = match (here.canonicalize(), root.join(inside).canonicalize()) {
        (Ok(leads), Ok(reads)) => leads == reads,
        (Err(leads), Err(reads)) => !expanded && leads_nowhere(&leads) && leads_nowhere(&reads),
        _ => false,
    };
    Ok(kept.then_some(target))
}

/// Where a link at `link` leads, as its target reads: a path in the tree, or `None` outside.
fn place_in_tree(link: &Path, target: &OsStr) -> Option<PathBuf> {
    let mut place: Vec<&[u8]> = link.as_os_str().as_bytes().split(|&b| b == b'/').collect();
    // The link's own name.
    place.pop();
    if target.as_bytes().starts_with(b"/") {
        return None;
    }
    for component in target.as_bytes().split(|&b| b == b'/') {
        match component {
            b"" | b"." => {}
            b".." => drop(place.pop()?),
            name => place.push(name),
        }
    }
    Some(PathBuf::from(OsString::from_vec(place.join(&b'/'))))
}

/// Whether that is the error of a path that leads to no file, links in a circle included.
fn leads_nowhere(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn targets_are_read_component_by_component() {
        let place = |link: &str, target: &str| {
            place_in_tree(Path::new(link), OsStr::new(target)).map(|path| path.to_str().unwrap().to_owned())
        };
        for (link, target, inside) in [
            ("l", "a", "a"),
            ("a/l", "b", "a/b"),
            ("a/l", "./b//c/", "a/b/c"),
            ("a/l", "..", ""),
            ("a/b/l", "../../c", "c"),
            ("a/l", "b/../../c", "c"),
        ] {
            assert_eq!(place(link, target).as_deref(), Some(inside), "{link} -> {target}");
        }
        for (link, target) in
            [("l", ".."), ("l", "../a"), ("a/l", "../../t/a"), ("l", "/a"), ("l", "a/../../t")]
        {
            assert_eq!(place(link, target), None, "{link} -> {target}");
        }
    }

    #[test]
    fn a_link_is_kept_where_it_leads_where_it_reads() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        create_dir_all(root.join("a/deep")).unwrap();
        create_dir_all(dir.path().join("outside/deep")).unwrap();
        write(root.join("a/x"), "x").unwrap();
        write(root.join("x"), "another").unwrap();
        write(dir.path().join("outside/x"), "x").unwrap();
        symlink("a/deep", root.join("to-deep")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        let kept = |link: &str, target: &str, expanded: bool| {
            let link = Path::new(link);
            let _ = std::fs::remove_file(root.join(link));
            symlink(target, root.join(link)).unwrap();
            kept(&root, link, expanded).unwrap().is_some()
        };
        assert!(kept("l", "a/x", false) && kept("a/l", "../x", false) && kept("a/l", "..", false));
        assert!(kept("l", "nowhere", false) && kept("l", "l", false) && kept("l", "x/y", false));
        // Read, this is x; the system comes to a/x.
        assert!(!kept("l", "to-deep/../x", false));
        assert!(!kept("l", "../outside/x", false) && !kept("l", "../nowhere", false));
        assert!(!kept("l", root.join("x").to_str().unwrap(), false));
        // Behind a link that was followed.
        assert!(kept("out/l", "x", true) && kept("out/l", "deep", true));
        assert!(!kept("out/deep/l", "../../x", true) && !kept("out/l", "nowhere", true));
    }
}
